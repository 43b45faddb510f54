#include "lib/learner/learner.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/log.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include "lib/learner/testing/test_run.h"
#include "lib/policy/policy_entry.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using sample::Disposition;
using testing::HasSubstr;
using Kind = StepOutcome::Kind;

TEST(LearnerTest, PublishesOnlyWhatAnUpdateChanged) {
  TestRun run([](LearnerConfig& config) {
    for (const char* idle : {"idle", "idler"}) {
      config.schema.policies.push_back(config.schema.policies[policy::PolicySlot(0)]);
      config.schema.policies.back().id = policy::PolicyId(idle);
    }
  });
  ASSERT_TRUE(run.learner_->Start().ok());
  EXPECT_EQ(run.publisher_.publications(), 3);
  auto worker = run.Join();
  for (int64_t k = 1; k <= 3; ++k) {
    EXPECT_EQ(run.Work(*worker), 1);
    ASSERT_EQ(run.Step().kind, Kind::kUpdated);
    EXPECT_EQ(run.publisher_.publications(), 3 + k);
    EXPECT_EQ(run.publisher_.version(), (policy::WeightVersion{1, k})) << "of all policies";
    EXPECT_EQ(run.publisher_.Newest(0)->version, (policy::WeightVersion{1, k}));
    EXPECT_EQ(run.publisher_.Newest(1)->version, (policy::WeightVersion{1, 0})) << "nobody played it";
  }
}

TEST(LearnerTest, UpdatesAndPublishesIterationByIteration) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  EXPECT_EQ(run.publisher_.version(), (policy::WeightVersion{1, 0}));
  auto worker = run.Join();
  EXPECT_EQ(run.Step().kind, Kind::kWaiting);
  for (int64_t k = 0; k < 5; ++k) {
    EXPECT_EQ(run.Work(*worker), 1);
    run.clock_.Advance(absl::Seconds(2));
    ASSERT_EQ(run.Step().kind, Kind::kUpdated);
    EXPECT_EQ(run.trainer_->last_context().iteration, k);
    EXPECT_EQ(run.trainer_->last_context().env_steps, 40 * k);
    EXPECT_EQ(run.trainer_->last_context().seed, 11u);
    EXPECT_EQ(run.publisher_.version(), (policy::WeightVersion{1, k + 1}));
  }
  const ProgressRecord& record = run.listener_.records_.back();
  EXPECT_EQ(run.listener_.records_.size(), 5u);
  EXPECT_EQ(record.env_steps, 200);
  EXPECT_EQ(record.agent_steps, 400);
  EXPECT_EQ(record.updates, 5);
  EXPECT_EQ(record.episodes, 40);
  EXPECT_DOUBLE_EQ(record.wall_clock_s, 10);
  EXPECT_DOUBLE_EQ(record.env_steps_per_s, 20);
  EXPECT_DOUBLE_EQ(*record.episode_length, 5);
  EXPECT_NEAR(*record.return_sum, 2 * *record.return_mean, 1e-9);
  EXPECT_EQ(record.minibatch_steps, 1);
  EXPECT_EQ(record.policy_lag, 0);
  EXPECT_EQ(record.workers, 1);
  EXPECT_EQ(record.rows.trained, 400);
  EXPECT_EQ(record.losses, (std::vector<std::pair<std::string, double>>{{"Loss/Policy loss", 1.0}}));
}

TEST(LearnerTest, WeightsThatNeverChangeArePublishedOnceAndNoneWhereThereAreNone) {
  const auto run = std::make_unique<TestRun>([](LearnerConfig& config) {
    config.schema.policies.resize(3, config.schema.policies[policy::PolicySlot(0)]);
    config.schema.policies[policy::PolicySlot(1)].id = policy::PolicyId("frozen");
    config.schema.policies[policy::PolicySlot(1)].policy_class = *policy::ParsePolicyClass("checkpoint:runs/old");
    config.schema.policies[policy::PolicySlot(2)].id = policy::PolicyId("dice");
    config.schema.policies[policy::PolicySlot(2)].policy_class = *policy::ParsePolicyClass("random");
  });
  ASSERT_TRUE(run->learner_->Start().ok());
  ASSERT_NE(run->publisher_.Newest(1), nullptr);
  const policy::WeightSnapshotPtr frozen = run->publisher_.Newest(1);
  EXPECT_EQ(frozen->version, (policy::WeightVersion{1, 0}));
  auto worker = run->Join();
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(run->Work(*worker), 1);
    ASSERT_EQ(run->Step().kind, Kind::kUpdated);
  }
  EXPECT_EQ(run->publisher_.version(), (policy::WeightVersion{1, 3}));
  EXPECT_EQ(run->publisher_.Newest(1), frozen);
  EXPECT_EQ(run->publisher_.Newest(2), nullptr);
  // All of them are in what is saved, and a learner that goes on publishes the frozen one again.
  const absl::StatusOr<LearnerSnapshot> saved = run->learner_->SnapshotState();
  ASSERT_TRUE(saved.ok()) << saved.status();
  ASSERT_EQ(saved->state.policies.size(), 3u);
  EXPECT_TRUE(saved->state.policies[2].parameters().empty());
  TestRun later([&](LearnerConfig& config) {
    config.schema = run->config_.schema;
    config.learner_epoch = 2;
  });
  ASSERT_TRUE(later.learner_->Restore(saved->state).ok());
  ASSERT_TRUE(later.learner_->Start().ok());
  EXPECT_EQ(later.publisher_.Newest(1)->version, (policy::WeightVersion{2, 3}));
  EXPECT_EQ(later.publisher_.Newest(2), nullptr);
}

TEST(LearnerTest, MetricsHaveTheirTags) {
  TestRun run([](LearnerConfig& config) {
    config.schema = sample::RandomSchema(3);
    config.schema.num_info_columns = 1;
    config.info_columns = {"collisions"};
    config.options.num_envs = 4;
  });
  run.rollout_options_ = sample::RandomRolloutOptions(run.config_.schema, 3);
  run.rollout_options_.min_episode_steps = run.rollout_options_.max_episode_steps = 4;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  run.Work(*worker);
  run.clock_.Advance(absl::Seconds(1));
  ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  for (const char* tag : {"Train-Results/Episode-Rewards",
                          "Train-Results/Episode-Rewards/Mean-Agent",
                          "Train-Results/Episode-Steps",
                          "Reward / Total reward (mean)",
                          "Train-Results/Episode-Rewards/Min",
                          "Train-Results/Episode-Rewards/Max",
                          "Train-Results/Episode-Steps/Min",
                          "Train-Results/Episode-Steps/Max",
                          "env/collisions",
                          "Loss/Policy loss",
                          "Time/env_steps_per_s",
                          "Time/update_s",
                          "Time/train_s",
                          "scout_0/Loss/Policy loss",
                          "Time/wait_s",
                          "Rows/received",
                          "Rows/accepted",
                          "Rows/duplicate",
                          "Rows/stale",
                          "Rows/invalid",
                          "Rows/trained",
                          "Rows/dropped",
                          "Lag/mean",
                          "Workers/connected"}) {
    EXPECT_EQ(run.sink_.values_.count(tag), 1u) << tag;
  }
  EXPECT_EQ(run.sink_.last_env_steps_, 40);
  EXPECT_EQ(run.sink_.values_["Time/env_steps_per_s"], 40);
  // What is told by name of policies and agents is NamedValues'.
  const ProgressRecord& record = run.listener_.records_.back();
  ASSERT_NE(record.policies, nullptr);
  EXPECT_FALSE(record.policies->empty());
  EXPECT_EQ(record.table->Find(policy::PolicySlot(1))->spec.id.value(), "eye");
  EXPECT_FALSE(record.window.agents[0].empty());
  EXPECT_FALSE(record.window.policies[policy::PolicySlot(0)].empty());
}

TEST(LearnerTest, LagOneSamplesDuringTheUpdate) {
  TestRun run([](LearnerConfig& config) { config.options.max_policy_lag = 1; });
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  EXPECT_EQ(run.Work(*worker), 2) << "iterations 0 and 1, both with version 0";
  ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_EQ(run.listener_.records_.back().policy_lag, 0);
  EXPECT_EQ(run.Work(*worker), 1);
  ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_EQ(run.listener_.records_.back().policy_lag, 1);
  EXPECT_TRUE(CheckConservation(run.learner_->Status().progress.rows).ok());
}

TEST(LearnerTest, StopsWithoutSamplingMoreThanItNeeds) {
  for (const int64_t lag : {0, 1}) {
    SCOPED_TRACE(lag);
    TestRun run([lag](LearnerConfig& config) {
      config.options.max_policy_lag = lag;
      config.stop.env_steps = 120;
    });
    ASSERT_TRUE(run.learner_->Start().ok());
    auto worker = run.Join();
    int grants = 0;
    StepOutcome outcome;
    do {
      grants += run.Work(*worker);
      outcome = run.Step();
    } while (outcome.kind == Kind::kUpdated);
    EXPECT_EQ(outcome.kind, Kind::kStopped);
    EXPECT_EQ(outcome.reason, "stop.env_steps reached: 120 of 120");
    EXPECT_EQ(run.trainer_->updates(), 3);
    EXPECT_EQ(grants, 3);
    EXPECT_EQ(run.Step().kind, Kind::kStopped);
    EXPECT_EQ(run.learner_->Status().state, "stopped");
    EXPECT_EQ(run.learner_->Join({}, std::make_shared<FakeWorkerPort>()).status().code(), absl::StatusCode::kCancelled);
  }
}

TEST(LearnerTest, StopsByUpdatesAgentStepsReturnAndTime) {
  const auto updates = [](std::function<void(LearnerConfig&)> change, int limit) {
    TestRun run(change);
    EXPECT_TRUE(run.learner_->Start().ok());
    auto worker = run.Join();
    for (int i = 0; i < limit; ++i) {
      run.Work(*worker);
      run.clock_.Advance(absl::Seconds(1));
      if (run.Step().kind == Kind::kStopped) break;
    }
    return run.trainer_->updates();
  };
  EXPECT_EQ(updates([](LearnerConfig& c) { c.stop.updates = 2; }, 10), 2);
  EXPECT_EQ(updates([](LearnerConfig& c) { c.stop.agent_steps = 81; }, 10), 2);
  EXPECT_EQ(updates([](LearnerConfig& c) { c.stop.wall_clock = absl::Seconds(3); }, 10), 3)
      << "the third was complete in time";
  const auto by_return = [](LearnerConfig& c) { c.stop.episode_return = {{Score{}, -1000}}; };
  EXPECT_EQ(updates(by_return, 30), 13) << "8 episodes an update: 100 are there after 13";
}

TEST(LearnerTest, AtTheEndOfTheTimeWhatIsCompleteIsTrainedAndNoMore) {
  for (const int64_t lag : {0, 1}) {
    SCOPED_TRACE(lag);
    TestRun run([lag](LearnerConfig& config) {
      config.options.max_policy_lag = lag;
      config.stop.wall_clock = absl::Seconds(3);
    });
    ASSERT_TRUE(run.learner_->Start().ok());
    auto worker = run.Join();
    const int complete = run.Work(*worker);
    EXPECT_EQ(complete, 1 + lag);
    run.clock_.Advance(absl::Seconds(4));
    for (int i = 0; i < complete; ++i) EXPECT_EQ(run.Step().kind, Kind::kUpdated);
    EXPECT_EQ(run.Work(*worker), 0) << "nothing is granted any more";
    const StepOutcome outcome = run.Step();
    EXPECT_EQ(outcome.kind, Kind::kStopped);
    EXPECT_EQ(outcome.reason, "stop.wall_clock reached: 4 of 3 s");
    EXPECT_EQ(run.learner_->Status().progress.rows.queued, 0);
    EXPECT_EQ(run.trainer_->updates(), complete);
  }
}

TEST(LearnerTest, TimeBeginsWithTheFirstSamples) {
  TestRun run([](LearnerConfig& config) { config.stop.wall_clock = absl::Seconds(3); });
  ASSERT_TRUE(run.learner_->Start().ok());
  run.clock_.Advance(absl::Seconds(30));
  EXPECT_EQ(run.Step().kind, Kind::kWaiting) << "workers are being started";
  auto worker = run.Join();
  run.clock_.Advance(absl::Seconds(10));
  run.learner_->Tick();
  EXPECT_EQ(run.Step().kind, Kind::kWaiting) << "environments are being made";
  run.Work(*worker);
  run.clock_.Advance(absl::Seconds(2));
  ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_DOUBLE_EQ(run.listener_.records_.back().wall_clock_s, 2);
  run.clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(run.Step().kind, Kind::kStopped);
}

TEST(LearnerTest, AnEndWithoutAnUpdateSaysSo) {
  TestRun run([](LearnerConfig& config) { config.stop.wall_clock = absl::Seconds(3); });
  run.rollout_options_.max_ticks_per_fragment = 5;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto first = run.Join();
  const auto grant = first->port->TryTakeGrant();
  ASSERT_TRUE(grant.has_value());
  auto fragments = first->rollout.Play(*grant, run.publisher_.version());
  ASSERT_FALSE(fragments.empty());
  ASSERT_TRUE(run.learner_->Submit(first->ticket, 1, fragments[0]).ok());
  run.clock_.Advance(absl::Seconds(4));
  const StepOutcome outcome = run.Step();
  EXPECT_EQ(outcome.kind, Kind::kStopped);
  EXPECT_EQ(outcome.reason,
            "stop.wall_clock reached: 4 of 3 s; no update was made: 20 env steps had arrived, a batch has 40");
}

TEST(LearnerTest, AStopThatIsReachedAlreadyTrainsNothing) {
  TestRun run([](LearnerConfig& config) {
    config.stop.updates = 1;
    config.learner_epoch = 2;
  });
  LearnerState state;
  state.iteration = 1;
  state.learner_epoch = 1;
  state.policies = {*run.trainer_->ExportState(policy::PolicySlot(0))};
  ASSERT_TRUE(run.learner_->Restore(state).ok());
  ASSERT_TRUE(run.learner_->Start().ok());
  EXPECT_EQ(run.Step().kind, Kind::kStopped);
}

TEST(LearnerTest, EveryDispositionIsCounted) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  const auto grant = worker->port->TryTakeGrant();
  ASSERT_TRUE(grant.has_value());
  const auto batch = worker->rollout.Play(*grant, {1, 0})[0];
  auto bad = sample::MakeBatch(run.config_.schema, run.rollout_options_, 1, 5, {1, 0});
  sample::MutableColumn<float>(bad->policies[0].rewards)[0] = std::numeric_limits<float>::quiet_NaN();
  const auto old = sample::MakeBatch(run.config_.schema, run.rollout_options_, 1, 5, {0, 0});
  const auto submit = [&](uint64_t sequence, const sample::MultiAgentBatchPtr& fragment) {
    return *run.learner_->Submit(worker->ticket, sequence, fragment);
  };
  EXPECT_EQ(submit(1, old).disposition, Disposition::kStale);
  const auto accepted = submit(2, batch);
  EXPECT_EQ(accepted.disposition, Disposition::kAccepted);
  EXPECT_EQ(accepted.watermark, 2u);
  EXPECT_EQ(submit(2, batch).disposition, Disposition::kDuplicate);
  const auto invalid = submit(4, bad);
  EXPECT_EQ(invalid.disposition, Disposition::kInvalid);
  EXPECT_EQ(invalid.watermark, 2u);
  const auto undecodable = *run.learner_->SubmitUndecodable(worker->ticket, 3, "no protobuf");
  EXPECT_EQ(undecodable.disposition, Disposition::kInvalid);
  EXPECT_EQ(undecodable.watermark, 4u);
  const LearnerStatus status = run.learner_->Status();
  EXPECT_EQ(status.progress.rows.received, 10 + 80 + 80 + 10);
  EXPECT_EQ(status.progress.rows.stale, 10);
  EXPECT_EQ(status.progress.rows.accepted, 80);
  EXPECT_EQ(status.progress.rows.duplicate, 80);
  EXPECT_EQ(status.progress.rows.invalid, 10);
  EXPECT_EQ(status.progress.rows.queued, 80);
  EXPECT_EQ(status.fragments.received, 5);
  EXPECT_EQ(status.fragments.invalid, 2);
  EXPECT_TRUE(CheckConservation(status.progress.rows).ok());
  ASSERT_EQ(status.workers.size(), 1u);
  EXPECT_EQ(status.workers[0].accepted_rows, 80);
  EXPECT_EQ(status.workers[0].lanes, 4);
  EXPECT_EQ(status.policy_rows[policy::PolicySlot(0)].accepted, 80);
  EXPECT_GT(status.queue_bytes, 0);
  EXPECT_EQ(status.queue_budget_bytes, run.config_.options.ingest_budget_bytes);
}

TEST(LearnerTest, ASecondRegistrationFencesTheFirst) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto zombie = run.Join();
  const auto old_grant = zombie->port->TryTakeGrant();
  auto again = run.Join({zombie->ticket.worker_id, 1});
  EXPECT_EQ(again->ticket.worker_id, zombie->ticket.worker_id);
  EXPECT_TRUE(zombie->ticket.worker_epoch < again->ticket.worker_epoch);
  const auto refused = run.learner_->Submit(zombie->ticket, 1, zombie->rollout.Play(*old_grant, {1, 0})[0]);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(run.learner_->Heartbeat(zombie->ticket).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(run.learner_->SubmitUndecodable(zombie->ticket, 1, "").status().code(),
            absl::StatusCode::kFailedPrecondition);
  run.learner_->Leave(zombie->ticket);  // no effect
  EXPECT_TRUE(run.learner_->Heartbeat(again->ticket).ok());
  EXPECT_EQ(run.Work(*again), 1) << "everything again, at once";
  EXPECT_EQ(run.Step().kind, Kind::kUpdated);
  WorkerTicket other_life = again->ticket;
  other_life.learner_epoch = 7;
  EXPECT_EQ(run.learner_->Heartbeat(other_life).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(LearnerTest, ASilentWorkerIsLetGo) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto silent = run.Join();
  run.clock_.Advance(absl::Seconds(10));
  auto lively = run.Join();
  EXPECT_EQ(run.Work(*lively), 0);
  run.clock_.Advance(absl::Seconds(6));
  run.learner_->Tick();
  EXPECT_EQ(run.learner_->Status().workers.size(), 1u);
  EXPECT_EQ(run.Work(*lively), 1);
  EXPECT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_EQ(run.learner_->Heartbeat(silent->ticket).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(LearnerTest, TickStartsAShortHandedRun) {
  TestRun run([](LearnerConfig& config) { config.options.num_workers = 3; });
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  run.learner_->Tick();
  EXPECT_EQ(run.Work(*worker), 0);
  EXPECT_EQ(run.learner_->Status().state, "waiting for workers");
  run.clock_.Advance(absl::Seconds(10));
  run.learner_->Tick();
  EXPECT_EQ(run.learner_->Status().state, "sampling");
  EXPECT_EQ(run.Work(*worker), 1);
}

TEST(LearnerTest, ADrainTrainsWhatIsCompleteAndThenEnds) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  run.Work(*worker);
  run.learner_->RequestDrain("SIGTERM");
  EXPECT_EQ(worker->port->drain(), "SIGTERM");
  EXPECT_EQ(run.Step().kind, Kind::kUpdated);
  const StepOutcome outcome = run.Step();
  EXPECT_EQ(outcome.kind, Kind::kDrained);
  EXPECT_EQ(outcome.reason, "SIGTERM");
  EXPECT_EQ(run.Work(*worker), 0);
  EXPECT_EQ(run.learner_->Join({}, std::make_shared<FakeWorkerPort>()).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(run.learner_->SnapshotState().ok());
  EXPECT_EQ(run.learner_->Status().state, "draining");
}

TEST(LearnerTest, AFailedUpdateEndsTheRunAndKeepsTheBooks) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  run.Work(*worker);
  run.trainer_->FailNext(absl::InternalError("out of memory"));
  const StepOutcome outcome = run.Step();
  EXPECT_EQ(outcome.kind, Kind::kFailed);
  EXPECT_EQ(outcome.status, absl::InternalError("out of memory"));
  EXPECT_TRUE(outcome.state_is_whole);
  const absl::StatusOr<LearnerSnapshot> saved = run.learner_->SnapshotState();
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->state.iteration, 0);
  EXPECT_EQ(saved->state.env_steps, 0);
  EXPECT_EQ(run.Step().kind, Kind::kFailed);
  const LearnerStatus status = run.learner_->Status();
  EXPECT_EQ(status.state, "failed");
  EXPECT_EQ(status.reason, "out of memory");
  EXPECT_EQ(status.progress.rows.dropped, 80);
  EXPECT_EQ(status.progress.rows.queued, 0);
  EXPECT_TRUE(CheckConservation(status.progress.rows).ok());
}

TEST(LearnerTest, BadConfigurationsAreRefused) {
  FakePublisher publisher;
  const auto error = [&](std::function<void(LearnerConfig&)> change) {
    LearnerConfig config;
    config.schema = sample::SimpleSchema();
    change(config);
    FakeTrainer trainer(config.schema.policies);
    LearnerDeps deps;
    deps.trainer = &trainer;
    deps.publisher = &publisher;
    return std::string(Learner::Create(config, deps).status().message());
  };
  EXPECT_EQ(error([](LearnerConfig&) {}), "");
  EXPECT_THAT(error([](LearnerConfig& c) { c.learner_epoch = 0; }), HasSubstr("learner_epoch is 0"));
  EXPECT_THAT(error([](LearnerConfig& c) { c.options.train_batch_size = 0; }), HasSubstr("train_batch_size is 0"));
  EXPECT_THAT(error([](LearnerConfig& c) { c.options.max_policy_lag = -1; }), HasSubstr("max_policy_lag is -1"));
  EXPECT_THAT(error([](LearnerConfig& c) { c.options.num_workers = -1; }), HasSubstr("num_workers is -1"));
  EXPECT_THAT(error([](LearnerConfig& c) { c.options.num_envs = 0; }), HasSubstr("num_envs is 0"));
  EXPECT_THAT(error([](LearnerConfig& c) { c.options.num_envs = 1001; }), HasSubstr("expected at least 1001"));
  EXPECT_THAT(error([](LearnerConfig& c) { c.schema.policies.clear(); }), HasSubstr("policies is 0"));
  EXPECT_THAT(error([](LearnerConfig& c) { c.info_columns = {"x"}; }), HasSubstr("info_columns has 1"));
  EXPECT_THAT(error([](LearnerConfig& c) { c.schema.agent_observation_sizes.clear(); }), HasSubstr("joint"));
  EXPECT_THAT(error([](LearnerConfig& c) { c.options.ingest_budget_bytes = 1 << 20; }),
              HasSubstr("ingest_budget_bytes is 1048576"));
}

TEST(LearnerTest, AbsurdSequencesDoNotJoin) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  WorkerHello hello;
  hello.next_sequence = ~uint64_t{0};
  EXPECT_EQ(run.learner_->Join(hello, std::make_shared<FakeWorkerPort>()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LearnerTest, AWorkerThatSkipsWhatNobodyCanHaveSentBooksNothing) {
  TestRun run([](LearnerConfig& config) { config.learner_epoch = 2; });
  ASSERT_TRUE(run.learner_->Start().ok());
  for (const uint64_t id : {uint64_t{0}, uint64_t{7}, (uint64_t{1} << 32) + 3}) {
    const auto joined =
        run.learner_->Join({sample::WorkerId(id), uint64_t{1} << 40}, std::make_shared<FakeWorkerPort>());
    EXPECT_EQ(joined.ok(), id != (uint64_t{1} << 32) + 3) << joined.status();
  }
  EXPECT_EQ(run.learner_->Status().fragments.rolled_back, 0);
  EXPECT_EQ(run.learner_->Status().fragments.unknown, 0);
}

TEST(LearnerTest, EnvCountersThatNoWorkerReachesEndItsStream) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  sample::EnvCounters counters;
  counters.errors = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(run.learner_->Heartbeat(worker->ticket, sample::EnvReport{.counters = counters}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(run.learner_->Status().progress.env_counters.errors, 0);
}

/// So many of the last 20 episodes failed.
sample::EnvReport FailedOf20(int32_t failed) {
  sample::EnvReport report;
  report.counters.errors = failed;
  report.recent = {20, failed};
  report.incidents = {{sample::EnvIncident::What::kFailure, "it broke", "it broke\x1b[31m at once\nFile \"a\""}};
  return report;
}

TEST(LearnerTest, AWorkerWhoseEpisodesFailGetsNoMoreWorkAndTheOthersHaveIt) {
  TestRun run([](LearnerConfig& config) {
    config.options.num_workers = 2;
    config.options.max_failed_share = 0.5;
  });
  ASSERT_TRUE(run.learner_->Start().ok());
  auto bad = run.Join({.name = "host:7"});
  auto good = run.Join();
  EXPECT_EQ(run.Work(*good), 1);
  testing::internal::CaptureStderr();
  base::InitLogging("learner_test", "warn");
  ASSERT_TRUE(run.learner_->Heartbeat(bad->ticket, FailedOf20(11)).ok());
  ASSERT_TRUE(run.learner_->Heartbeat(bad->ticket, FailedOf20(12)).ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("environment failed worker=1.1 name=host:7, more of this kind are only counted: "
                             "it broke\\x1b[31m at once\n  File \"a\"\n"));
  EXPECT_THAT(log, HasSubstr("a worker gets no more work: worker 1.1 (host:7), 11 of its last 20 episodes failed, "
                             "the first: it broke\\x1b[31m at once\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3) << "each is said once\n" << log;

  const auto grant = bad->port->TryTakeGrant();
  ASSERT_TRUE(grant.has_value());
  EXPECT_EQ(run.Work(*good), 1) << "what the other has not done";
  EXPECT_EQ(run.Step().kind, Kind::kUpdated);
  const auto late = run.learner_->Submit(bad->ticket, 1, bad->rollout.Play(*grant, {1, 0}).at(0));
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->disposition, Disposition::kStale);
  const WorkerStatus status = run.learner_->Status().workers.at(0);
  EXPECT_THAT(status.gets_no_work, HasSubstr("12 of its last 20"));
  EXPECT_EQ(status.recent_episodes, (sample::RecentEpisodes{20, 12}));
  EXPECT_EQ(run.learner_->Status().workers.at(1).gets_no_work, "");

  // It comes again; and so does another process of its host, which is judged by its own episodes.
  run.learner_->Leave(bad->ticket);
  auto again = run.Join({.worker_id = bad->ticket.worker_id, .next_sequence = 2});
  auto other = run.Join({.name = "host:8"});
  EXPECT_EQ(run.Work(*good), 1);
  EXPECT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_EQ(again->port->TryTakeGrant(), std::nullopt);
  EXPECT_EQ(run.Work(*other), 1);
}

TEST(LearnerTest, TheRunEndsWhereEveryWorkersEpisodesFail) {
  TestRun run([](LearnerConfig& config) { config.options.max_failed_share = 0.5; });
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  EXPECT_EQ(run.Work(*worker), 1);
  ASSERT_TRUE(run.learner_->Heartbeat(worker->ticket, FailedOf20(11)).ok());
  EXPECT_EQ(run.Step().kind, Kind::kUpdated) << "what was there whole is trained on";
  const StepOutcome end = run.Step();
  EXPECT_EQ(end.kind, Kind::kEnvsFailed);
  EXPECT_THAT(end.reason,
              HasSubstr("more than env.max_failed_share (0.5) of the last episodes failed at the only worker"));
  EXPECT_EQ(worker->port->TryTakeGrant(), std::nullopt);
  EXPECT_EQ(run.learner_->SnapshotState()->state.env_steps, 40);
}

TEST(LearnerTest, FailureFromTheStartEndsTheRunAfterAMomentUnlessAnotherWorkerRuns) {
  TestRun run([](LearnerConfig& config) {
    config.options.num_workers = 2;
    config.options.max_failed_share = 0.5;
  });
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  auto slow = run.Join();
  sample::EnvReport report = FailedOf20(3);
  report.recent = {3, 3};
  report.fails_from_the_start = true;
  ASSERT_TRUE(run.learner_->Heartbeat(worker->ticket, report).ok());
  EXPECT_EQ(run.Step().kind, Kind::kWaiting);
  run.clock_.Advance(EnvHealth::kGrace);
  EXPECT_EQ(run.Step().kind, Kind::kEnvsFailed);
}

TEST(LearnerTest, ABudgetThatCannotHoldTheBatchEndsTheRunInWords) {
  // Complete episodes of 200 steps where 40 steps were asked for: far more than the start-up check could know of.
  TestRun run([](LearnerConfig& config) {
    config.options.complete_episodes = true;
    config.limits.max_message_bytes = 20000;
    config.options.ingest_budget_bytes = 40 * MaxBytesPerEnvStep(config.schema) + 20000;
  });
  run.rollout_options_.min_episode_steps = run.rollout_options_.max_episode_steps = 400;
  run.rollout_options_.max_ticks_per_fragment = 10;
  ASSERT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  absl::Status status;
  for (auto& fragment : worker->rollout.Play(*worker->port->TryTakeGrant(), {1, 0})) {
    status = run.learner_->Submit(worker->ticket, worker->next_sequence++, fragment).status();
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const StepOutcome outcome = run.Step();
  EXPECT_EQ(outcome.kind, Kind::kFailed);
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("ingest_budget_bytes is too small for iteration 0"));
}

}  // namespace
}  // namespace troupe::learner
