// Environments, policies and callbacks that fail: what a collector keeps of their episodes, and whom it tells.

#include <memory>
#include <string>
#include <vector>

#include "lib/rollout/collector.h"
#include "lib/rollout/testing/scripted_env.h"
#include "lib/rollout/testing/scripts.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CollectorTest, AFailedStepEndsTheEpisodeAtItsLastObservation) {
  // The step fails after it wrote observations and rewards; nothing of it may stay.
  const Script script = {
      {.observe = {0, 1}},
      {.observe = {0, 1}, .rewards = {{0, 1.0f}}},
      {.observe = {0}, .rewards = {{0, 2.0f}}},
      {.observe = {0, 1}, .rewards = {{0, 4.0f}, {1, 4.0f}}, .fail = true},
  };
  Rig rig(ScriptedConfig({}, Scripted({}, script)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 3)).ok());
  const sample::MultiAgentBatch& batch = *rig.sink.fragments.at(0);
  // Agent 0's decision at 2 and agent 1's at 1 never completed. The failed step is taken again in the next episode.
  EXPECT_THAT(SegmentsOf(batch),
              ElementsAre("env 0 ep 0 agent 0: 0(+1) 1(+2) truncated@2 at row lag 0",
                          "env 0 ep 0 agent 1: 0(+0) truncated@1 at row lag 0", "env 0 ep 1 agent 0: 0(+1) cut@1 lag 0",
                          "env 0 ep 1 agent 1: 0(+0) cut@1 lag 0"));
  EXPECT_EQ(batch.num_env_steps, 3);
  EXPECT_TRUE(batch.finished.empty()) << "a broken episode is no result";
  EXPECT_EQ(rig.collector->stats().env_errors, 1);
  EXPECT_EQ(rig.collector->stats().dropped_rows, 2);
}

TEST(CollectorTest, AFailedStepAlsoDropsACarriedDecision) {
  Script script = kTurns;
  script[4].fail = true;
  Rig rig(ScriptedConfig({}, Scripted({}, script)));
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 3)).ok());
  ASSERT_TRUE(rig.Run(ScriptedGrant(1, 1)).ok());
  EXPECT_TRUE(rig.sink.fragments.at(1)->policies.empty())
      << "agent 0's pending decision and agent 1's new one are gone";
  EXPECT_EQ(rig.collector->stats().dropped_rows, 2);
}

TEST(CollectorTest, AnEnvironmentThatAlwaysFailsEndsTheGrantWithItsError) {
  for (const bool at_reset : {true, false}) {
    Script script = kBothTruncated;
    script[at_reset ? 0 : 1].fail = true;
    Rig rig(ScriptedConfig({}, Scripted({}, script)));
    const absl::Status status = rig.Run(ScriptedGrant(2, 3));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("100 times in a row"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("scripted failure"));
    EXPECT_GE(rig.collector->stats().env_errors, 100);
    EXPECT_TRUE(rig.sink.fragments.empty());
    EXPECT_FALSE(rig.Run(ScriptedGrant(2, 3)).ok()) << "and it stays usable";
  }
}

TEST(CollectorTest, AnEnvironmentThatCannotGoOnEndsTheGrantAtOnce) {
  for (const bool at_reset : {true, false}) {
    Script script = kBothTruncated;
    script[at_reset ? 0 : 1].fail = true;
    Rig rig(ScriptedConfig({}, Scripted({.failure = absl::StatusCode::kResourceExhausted}, script)));
    const absl::Status status = rig.Run(ScriptedGrant(2, 3));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("scripted failure"));
    EXPECT_EQ(rig.collector->stats().env_errors, 1);
  }
}

TEST(CollectorTest, TheSinkKnowsWhatWentWrongBeforeTheFragment) {
  struct Sink final : SampleSink {
    absl::Status Submit(sample::MultiAgentBatchPtr) override {
      at_submit.push_back(counters);
      return absl::OkStatus();
    }
    void ReportEnvs(const sample::EnvReport& reported) override { counters = reported.counters; }
    sample::EnvCounters counters;
    std::vector<sample::EnvCounters> at_submit;
  } sink;
  Script script = kTurns;
  script[4].fail = true;
  RolloutConfig config = ScriptedConfig({}, Scripted({}, script));
  config.env_counters = [] { return sample::EnvCounters{.errors = 77, .timeouts = 2}; };
  const std::unique_ptr<Collector> collector = *Collector::Create(config);
  for (int steps : {3, 1}) {
    ASSERT_TRUE(RunGrant(*collector, ScriptedGrant(1, steps), ScriptedWeights(config, 5), sink).ok());
  }
  EXPECT_THAT(sink.at_submit, ElementsAre(sample::EnvCounters{.errors = 0, .timeouts = 2},
                                          sample::EnvCounters{.errors = 1, .timeouts = 2}));
}

/// Remembers the reports.
struct ReportSink final : SampleSink {
  absl::Status Submit(sample::MultiAgentBatchPtr) override {
    ++fragments;
    return absl::OkStatus();
  }
  void ReportEnvs(const sample::EnvReport& report) override { reports.push_back(report); }
  int fragments = 0;
  std::vector<sample::EnvReport> reports;
};

TEST(CollectorTest, FailuresAreToldAtOnceAndGrantsGivenUpBeyondTheShare) {
  for (const bool at_reset : {true, false}) {
    SCOPED_TRACE(at_reset);
    Script script = kBothTruncated;
    script[at_reset ? 0 : 1].fail = true;
    RolloutConfig config = ScriptedConfig({}, Scripted({}, script));
    config.options.max_failed_share = 0.5;
    const std::unique_ptr<Collector> collector = *Collector::Create(config);
    ReportSink sink;
    const absl::Status status = RunGrant(*collector, ScriptedGrant(4, 1000), ScriptedWeights(config, 5), sink);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("20 of the last 20 episodes failed, the last: "));
    EXPECT_TRUE(collector->gives_up());
    EXPECT_EQ(sink.fragments, 0);
    ASSERT_EQ(sink.reports.size(), 3u) << "of the kind, of all environments, and of the end";
    ASSERT_EQ(sink.reports[0].incidents.size(), 1u);
    EXPECT_THAT(sink.reports[0].incidents[0].text, HasSubstr("scripted failure"));
    EXPECT_EQ(sink.reports[0].recent, (sample::RecentEpisodes{1, 1}));
    EXPECT_FALSE(sink.reports[0].fails_from_the_start);
    EXPECT_EQ(sink.reports[1].recent, (sample::RecentEpisodes{4, 4})) << "each tries once before one tries again";
    EXPECT_TRUE(sink.reports[1].fails_from_the_start);
    EXPECT_EQ(sink.reports[2].recent, (sample::RecentEpisodes{20, 20}));
    EXPECT_TRUE(sink.reports[2].incidents.empty());
  }
}

TEST(CollectorTest, WhatACallbackDidCostsItsEpisodesAndIsNoFailureOfTheEnvironment) {
  for (const bool by_callback : {false, true}) {
    Script script = kTurns;
    script[4].fail = true;
    RolloutConfig config = ScriptedConfig({}, Scripted({.by_callback = by_callback}, script));
    config.options.max_failed_share = 0.1;
    const std::unique_ptr<Collector> collector = *Collector::Create(config);
    ReportSink sink;
    const absl::Status status = RunGrant(*collector, ScriptedGrant(4, 200), ScriptedWeights(config, 5), sink);
    EXPECT_EQ(status.ok(), by_callback) << status;
    EXPECT_GE(collector->stats().env_errors, 20) << "the episodes are lost, and counted";
    EXPECT_EQ(collector->TakeReport().recent.failed > 0, !by_callback);
  }
}

TEST(CollectorTest, OneThatFailsNowAndThenFailsNotFromTheStart) {
  int calls = 0;
  RolloutConfig config = ScriptedConfig({}, [&calls]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
    Script script = kBothTruncated;
    script[1].fail = calls++ == 0;  // of two environments the first one, always
    return Scripted({}, script)();
  });
  config.options.max_failed_share = 0.5;
  const std::unique_ptr<Collector> collector = *Collector::Create(config);
  ReportSink sink;
  const absl::Status status = RunGrant(*collector, ScriptedGrant(2, 40), ScriptedWeights(config, 5), sink);
  for (const sample::EnvReport& report : sink.reports) EXPECT_FALSE(report.fails_from_the_start);
  EXPECT_GT(collector->TakeReport().recent.ended, collector->TakeReport().recent.failed);
}

TEST(CollectorTest, AnEpisodeInWhichNobodyIsReadyIsAnError) {
  const Script script = {{.observe = {0, 1}}, {.observe = {}, .rewards = {{0, 1.0f}}}};
  Rig rig(ScriptedConfig({}, Scripted({}, script)));
  const absl::Status status = rig.Run(ScriptedGrant(1, 3));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no agent is ready"));
}

}  // namespace
}  // namespace troupe::rollout
