// How fast a learner says that it is.

#include <memory>

#include "lib/learner/testing/test_run.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using Kind = StepOutcome::Kind;

// A learner that made 64,000 env steps/s waited six seconds for its workers, and said 694/s.
TEST(LearnerRateTest, WaitingForWorkersIsNoPartOfTheFirstRate) {
  TestRun run;
  ASSERT_TRUE(run.learner_->Start().ok());
  run.clock_.Advance(absl::Seconds(6));
  run.learner_->Tick();
  auto worker = run.Join();
  run.clock_.Advance(absl::Seconds(1));  // sampling: it is of the span, and the first fragment comes behind it
  EXPECT_EQ(run.Work(*worker), 1);
  run.clock_.Advance(absl::Seconds(1));
  ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_DOUBLE_EQ(run.listener_.records_.back().env_steps_per_s, 20) << "40 env steps in two seconds";
  EXPECT_DOUBLE_EQ(run.sink_.values_["Time/env_steps_per_s"], 20);
  // From then on from update to update, whatever happens between them.
  run.clock_.Advance(absl::Seconds(3));
  EXPECT_EQ(run.Work(*worker), 1);
  run.clock_.Advance(absl::Seconds(1));
  ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_DOUBLE_EQ(run.listener_.records_.back().env_steps_per_s, 10);
}

TEST(LearnerRateTest, NorIsItOfTheFirstRateAfterAResume) {
  TestRun before;
  ASSERT_TRUE(before.learner_->Start().ok());
  auto worker = before.Join();
  before.Work(*worker);
  before.clock_.Advance(absl::Seconds(1));
  ASSERT_EQ(before.Step().kind, Kind::kUpdated);
  const absl::StatusOr<LearnerSnapshot> saved = before.learner_->SnapshotState();
  ASSERT_TRUE(saved.ok()) << saved.status();

  TestRun run([](LearnerConfig& config) { config.learner_epoch = 2; });
  ASSERT_TRUE(run.learner_->Restore(saved->state).ok());
  ASSERT_TRUE(run.learner_->Start().ok());
  run.clock_.Advance(absl::Seconds(58));
  worker = run.Join();
  EXPECT_EQ(run.Work(*worker), 1);
  run.clock_.Advance(absl::Seconds(2));
  ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_EQ(run.listener_.records_.back().env_steps, 80);
  EXPECT_DOUBLE_EQ(run.listener_.records_.back().env_steps_per_s, 20) << "of this life's steps and time";
}

// Who joined before the start has its grant from then on.
TEST(LearnerRateTest, TheFirstRateBeginsWithTheFirstGrant) {
  TestRun run([](LearnerConfig& config) { config.options.num_workers = 2; });
  ASSERT_TRUE(run.learner_->Start().ok());
  auto first = run.Join();
  run.clock_.Advance(absl::Seconds(5));
  EXPECT_EQ(run.Work(*first), 0) << "the second one is waited for";
  auto second = run.Join({.worker_id = sample::WorkerId(0), .name = "second"});
  EXPECT_EQ(run.Work(*first), 1);
  run.clock_.Advance(absl::Seconds(4));
  EXPECT_EQ(run.Work(*second), 1);
  ASSERT_EQ(run.Step().kind, Kind::kUpdated);
  EXPECT_DOUBLE_EQ(run.listener_.records_.back().env_steps_per_s, 10);
}

}  // namespace
}  // namespace troupe::learner
