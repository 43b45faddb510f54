#include "lib/run/learner/run_summary.h"

#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/run/evaluation.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::run {
namespace {

TEST(RunSummaryTest, WhatWasNotWrittenAtTheEndIsSaid) {
  RunSummary summary;
  summary.directory = "runs/run";
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary))["degraded"], nlohmann::json::array());
  EXPECT_EQ(SummaryText(summary).find("DEGRADED"), std::string::npos);
  summary.degraded = {"progress.jsonl cannot be written: No space left on device; 3 lines wait"};
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary))["degraded"], nlohmann::json(summary.degraded));
  EXPECT_NE(SummaryText(summary).find("DEGRADED: progress.jsonl cannot be written: No space left on device; 3 lines "
                                      "wait\nresults in runs/run\n"),
            std::string::npos)
      << SummaryText(summary);
}

// The last lines of a run that was resumed had the steps and the seconds of all its lives beside a rate of the last
// one, which counted waiting for workers, too.
TEST(RunSummaryTest, TheRateIsThatOfTheStepsAndTheSecondsBesideIt) {
  RunSummary summary;
  summary.run_name = "run";
  summary.reason = "stop.env_steps reached: 2000000 of 2000000";
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary))["env_steps_per_s"], 0) << "nothing was trained";
  summary.progress.env_steps = 2'000'000;
  summary.progress.updates = 500;
  summary.progress.wall_clock_s = 40;
  summary.progress.env_steps_per_s = 64'000;  // of the last update
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(summary));
  EXPECT_EQ(json["env_steps_per_s"], 50'000);
  EXPECT_EQ(
      SummaryText(summary).find("run after 2000000 env steps, 500 updates, 40.0 s (50000 env steps/s): stop.env_"), 0u)
      << SummaryText(summary);
}

TEST(RunSummaryTest, FailedEpisodesAndAFailedEvaluationAreSaid) {
  RunSummary summary;
  EXPECT_EQ(SummaryText(summary).find("ailed"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(SummaryJson(summary))["evaluation_error"].is_null());
  summary.progress.env_counters.errors = 12;
  summary.evaluation_error = "episode 3 failed 10 times";
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(summary));
  EXPECT_EQ(json["env_errors"], 12);
  EXPECT_EQ(json["env_timeouts"], 0);
  EXPECT_EQ(json["evaluation_error"], "episode 3 failed 10 times");
  EXPECT_NE(SummaryText(summary).find("12 episodes failed: "), std::string::npos);
  EXPECT_NE(SummaryText(summary).find("evaluation FAILED: episode 3 failed 10 times\n"), std::string::npos);
}

TEST(RunSummaryTest, EpisodesThatWereCutAreSaid) {
  const auto told = [](int64_t cut) {
    rollout::EvaluationResult result;
    result.episodes = 5;
    result.cut = cut;
    RunSummary summary;
    summary.evaluation = result;
    summary.evaluation_cut = CutText(result, 100);
    EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary))["evaluation"]["episodes_cut"], cut);
    return SummaryText(summary);
  };
  EXPECT_EQ(told(0).find("cut"), std::string::npos);
  EXPECT_NE(told(2).find("\n2 of 5 episodes were cut after 100 env steps (evaluation.max_episode_steps)\n"),
            std::string::npos);
  EXPECT_NE(told(5).find("\nNO EPISODE ENDED: all were cut after 100 env steps (evaluation.max_episode_steps); "
                         "env.max_episode_steps ends the episodes of a task without an end, in training, too\n"),
            std::string::npos);
}

TEST(RunSummaryTest, TheOtherKindOfActionsIsSaidWhereItsReturnIsAnother) {
  RunSummary summary;
  EXPECT_TRUE(nlohmann::json::parse(SummaryJson(summary))["evaluation_deterministic"].is_null());
  summary.evaluation.emplace();
  summary.evaluation->episodes = 100;
  summary.evaluation->return_sum = {.mean = 10, .std = 3};
  summary.other_actions = summary.evaluation;
  summary.other_actions->return_sum = {.mean = 10.5, .std = 4};  // the standard error of the difference is 0.5
  EXPECT_EQ(SummaryText(summary).find("actions"), std::string::npos);
  summary.other_actions->return_sum.mean = 10.51;
  EXPECT_NE(SummaryText(summary).find(" an agent\n  with each policy's likeliest actions: return 10.51 (std 4.00)\n"),
            std::string::npos)
      << SummaryText(summary);
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(summary));
  EXPECT_EQ(json["evaluation_deterministic"]["return_sum"], (nlohmann::json{{"mean", 10.51}, {"std", 4}}));
  summary.deterministic = true;
  EXPECT_NE(SummaryText(summary).find("  with sampled actions: return 10.51"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(SummaryJson(summary)).contains("evaluation_sampled"));
}

learner::ReturnsByName ByName(std::vector<std::pair<std::string, std::vector<double>>> returns) {
  learner::ReturnsByName by_name;
  for (const auto& [name, values] : returns) {
    learner::NamedReturns& named = by_name.named.emplace_back();
    named.name = name;
    for (const double value : values) named.returns.Add(value);
  }
  return by_name;
}

TEST(RunSummaryTest, WhereRewardsDifferItSpeaksOfPolicies) {
  RunSummary summary;
  summary.progress.return_sum = 0.0;
  summary.progress.rewards_differ = true;
  summary.returns.policies = summary.returns.few_policies = ByName({{"hunter", {-3, -1}}, {"runner", {1, 3}}});
  summary.returns.few_policies.others = {7, 8, 9};
  summary.returns.few_policies.rest.Add(0.5);
  summary.returns.agents = ByName({{"wolf", {-3, -1}}});
  summary.evaluation.emplace();
  summary.evaluation->episodes = 10;
  summary.evaluation_returns.policies = summary.evaluation_returns.few_policies = ByName({{"hunter", {2}}});
  const std::string text = SummaryText(summary);
  EXPECT_NE(text.find("training, last 100 episodes: return of an agent, by policy (least to largest)\n"
                      "  hunter  -2.00 (-3.00 to -1.00)\n"
                      "  runner  2.00 (1.00 to 3.00)\n"
                      "  3 others  0.50 (0.50 to 0.50)\n"
                      "evaluation, 10 episodes: return of an agent, by policy (least to largest)\n"
                      "  hunter  2.00 (2.00 to 2.00)\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("sum over agents"), std::string::npos) << text;
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(summary));
  EXPECT_EQ(json["rewards_differ"], true);
  EXPECT_TRUE(json["best_by"].is_null());
  EXPECT_TRUE(json["best_return"].is_null());
  EXPECT_EQ(json["policies"]["runner"], (nlohmann::json{{"return_mean", 2}, {"return_min", 1}, {"return_max", 3}}));
  EXPECT_EQ(json["agents"]["wolf"]["return_mean"], -2);
  EXPECT_EQ(json["evaluation"]["policies"]["hunter"]["mean"], 2);
  EXPECT_FALSE(json.contains("policies_rest")) << "all have names";
}

TEST(RunSummaryTest, WhereAgentsShareTheirRewardsItSpeaksOfTheSum) {
  RunSummary summary;
  summary.progress.return_sum = -30.0;
  summary.progress.best_by = "sum";
  summary.progress.best = -28.5;
  summary.returns.few_policies = ByName({{"shared", {-10}}});
  EXPECT_NE(SummaryText(summary).find("training return, last 100 episodes: -30.00 (sum over agents)\n"
                                      "best of it: -28.50\nresults in"),
            std::string::npos)
      << SummaryText(summary);
}

TEST(RunSummaryTest, DroppedRowsAreToldByCauseAndPolicy) {
  RunSummary summary;
  EXPECT_EQ(SummaryText(summary).find("dropped"), std::string::npos);
  std::vector<policy::PolicySpec> specs(2, sample::SimpleSchema().policies[policy::PolicySlot(0)]);
  specs[0].id = policy::PolicyId("boss");
  specs[1].id = policy::PolicyId("worker");
  learner::ProgressRecord& progress = summary.progress;
  progress.table = *policy::PolicyTable::Make(specs, {true, true}, {{"*", {{specs[0].id}}}}, {"agent"});
  progress.rows.dropped = 105;
  progress.rows.aged = 103;
  progress.policy_rows = policy::BySlot<learner::RowCounters>(2);
  progress.policy_rows[policy::PolicySlot(0)].accepted = 100;
  progress.policy_rows[policy::PolicySlot(0)].aged = 100;
  progress.policy_rows[policy::PolicySlot(1)].accepted = 5000;
  progress.policy_rows[policy::PolicySlot(1)].aged = 3;
  EXPECT_NE(
      SummaryText(summary).find("105 rows dropped: 103 too old (clients decided by older weights than "
                                "algorithm.max_policy_lag allows); boss 100 of 100, worker 3 of 5000; 2 let go\n"),
      std::string::npos)
      << SummaryText(summary);
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary))["rows"]["aged"], 103);
}

TEST(RunSummaryTest, AnEvaluationHasTheNamesOfProgressLines) {
  RunSummary summary;
  summary.evaluation_values = {{"evaluation_return_sum", 2.5}, {"evaluation/policy/a/return_mean", 1}};
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(summary));
  EXPECT_EQ(json["evaluation_return_sum"], 2.5);
  EXPECT_EQ(json["evaluation/policy/a/return_mean"], 1);
}

TEST(RunSummaryTest, OthersAreOne) {
  RunSummary summary;
  summary.returns.policies = ByName({{"a", {1}}});
  summary.returns.policies.others = {1, 2};
  summary.returns.policies.rest.Add(4);
  summary.returns.policies.rest.Add(6);
  const nlohmann::json json = nlohmann::json::parse(SummaryJson(summary));
  EXPECT_EQ(json["policies_rest"],
            (nlohmann::json{{"count", 2}, {"return_mean", 5}, {"return_min", 4}, {"return_max", 6}}));
}

}  // namespace
}  // namespace troupe::run
