// A learner that goes on from the state of another.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/learner/learner.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include "lib/learner/testing/test_run.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using Kind = StepOutcome::Kind;

TEST(LearnerTest, RestoreIsForALaterEpochAndBeforeTheStart) {
  TestRun run;
  const auto state_of = [&](uint64_t epoch) {
    LearnerState state;
    state.learner_epoch = epoch;
    state.policies = {*run.trainer_->ExportState(policy::PolicySlot(0))};
    return state;
  };
  EXPECT_EQ(run.learner_->Restore(state_of(1)).code(), absl::StatusCode::kFailedPrecondition) << "same epoch";
  LearnerState state = state_of(0);
  state.policies.clear();
  EXPECT_EQ(run.learner_->Restore(state).code(), absl::StatusCode::kInvalidArgument);
  state = state_of(0);
  state.policies[0].Set(policy::kParameters, std::vector<float>(state.policies[0].parameters().size() - 1));
  EXPECT_EQ(run.learner_->Restore(state).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(run.Step().kind, Kind::kFailed) << "before Start";
  ASSERT_TRUE(run.learner_->Start().ok());
  EXPECT_EQ(run.learner_->Start().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(run.learner_->Restore(state_of(0)).code(), absl::StatusCode::kFailedPrecondition);
}

/// Runs `updates` updates with one worker and gives the last published actor.
std::vector<float> TrainFor(TestRun& run, int64_t updates) {
  EXPECT_TRUE(run.learner_->Start().ok());
  auto worker = run.Join();
  for (int64_t i = 0; i < updates; ++i) {
    run.Work(*worker);
    EXPECT_EQ(run.Step().kind, Kind::kUpdated);
  }
  return run.Weights();
}

TEST(LearnerTest, TheSameRunTwiceGivesTheSameWeights) {
  TestRun first, second;
  TestRun other([](LearnerConfig& config) { config.options.seed = 12; });
  const std::vector<float> weights = TrainFor(first, 6);
  EXPECT_EQ(weights, TrainFor(second, 6));
  EXPECT_NE(weights, TrainFor(other, 6));
}

/// Episodes end with the fragments here (10 steps a lane, episodes of 5), so nothing is lost at the stop.
TEST(LearnerTest, StoppedAndResumedEqualsUninterrupted) {
  TestRun whole;
  const std::vector<float> weights = TrainFor(whole, 6);

  TestRun half([](LearnerConfig& config) { config.stop.updates = 3; });
  TrainFor(half, 3);
  EXPECT_EQ(half.Step().kind, Kind::kStopped);
  auto saved = half.learner_->SnapshotState();
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->state.iteration, 3);
  EXPECT_EQ(saved->state.env_steps, 120);
  EXPECT_EQ(saved->state.lanes.size(), 4u);
  for (const LaneState& lane : saved->state.lanes) EXPECT_EQ(lane.next_episode, 6u);
  EXPECT_EQ(saved->state.rows.queued, 0);

  TestRun rest([](LearnerConfig& config) { config.learner_epoch = 2; });
  ASSERT_TRUE(rest.learner_->Restore(saved->state).ok());
  EXPECT_EQ(TrainFor(rest, 3), weights);
  EXPECT_EQ(rest.publisher_.version(), (policy::WeightVersion{2, 6}));
  EXPECT_EQ(rest.listener_.records_.back().env_steps, whole.listener_.records_.back().env_steps);
  EXPECT_EQ(rest.listener_.records_.back().episodes, whole.listener_.records_.back().episodes);
  EXPECT_EQ(rest.listener_.records_.back().return_sum, whole.listener_.records_.back().return_sum);
}

/// A learner that dies in the middle: its successor books what was queued, and what the worker says was acknowledged
/// since.
TEST(LearnerTest, ARestartBooksWhatWasRolledBack) {
  TestRun before([](LearnerConfig& config) { config.options.max_policy_lag = 1; });
  ASSERT_TRUE(before.learner_->Start().ok());
  auto worker = before.Join();
  before.Work(*worker);  // two iterations, sequences 1 and 2
  ASSERT_EQ(before.Step().kind, Kind::kUpdated);
  auto saved = before.learner_->SnapshotState();
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->state.rows.queued, 80);
  const uint64_t id = worker->ticket.worker_id.value();
  EXPECT_EQ(saved->state.watermarks.at(id), 2u);
  before.Work(*worker);  // sequence 3, after the checkpoint
  EXPECT_EQ(worker->next_sequence, 4u);

  TestRun after([](LearnerConfig& config) { config.learner_epoch = 2; });
  ASSERT_TRUE(after.learner_->Restore(saved->state).ok());
  ASSERT_TRUE(after.learner_->Start().ok());
  EXPECT_EQ(after.publisher_.version(), (policy::WeightVersion{2, 1}));
  auto same = after.Join({worker->ticket.worker_id, worker->next_sequence});
  EXPECT_EQ(same->ticket.worker_id, worker->ticket.worker_id);
  const LearnerStatus status = after.learner_->Status();
  EXPECT_EQ(status.progress.rows.rolled_back, 80);
  EXPECT_EQ(status.fragments.rolled_back, 1);
  EXPECT_EQ(status.fragments.unknown, 0);
  EXPECT_TRUE(CheckConservation(status.progress.rows).ok());
  // Ordinals that were granted before the checkpoint do not come again.
  const auto grant = same->port->TryTakeGrant();
  ASSERT_TRUE(grant.has_value());
  for (const auto& lane : grant->lanes) EXPECT_GE(lane.next_episode, 4u);
  auto stranger = after.Join();
  EXPECT_NE(stranger->ticket.worker_id, worker->ticket.worker_id);
}

TEST(LearnerTest, ManyEnvironmentsLessAndTheirOrdinalsStay) {
  TestRun run([](LearnerConfig& config) { config.learner_epoch = 2; });
  LearnerState state;
  state.learner_epoch = 1;
  state.policies = {*run.trainer_->ExportState(policy::PolicySlot(0))};
  for (uint32_t env = 0; env < 6; ++env) state.lanes.push_back({base::EnvId(env), 10 + env});
  ASSERT_TRUE(run.learner_->Restore(state).ok());
  ASSERT_TRUE(run.learner_->Start().ok());
  const auto saved = run.learner_->SnapshotState();
  ASSERT_EQ(saved->state.lanes.size(), 6u);
  EXPECT_EQ(saved->state.lanes[5].env_id, base::EnvId(5));
  EXPECT_EQ(saved->state.lanes[5].next_episode, 15u);
}

}  // namespace
}  // namespace troupe::learner
