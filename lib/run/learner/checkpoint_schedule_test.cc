#include "lib/run/learner/checkpoint_schedule.h"

#include <gtest/gtest.h>

namespace troupe::run {
namespace {

config::ExperimentOptions Auto(int64_t interval_env_steps) {
  config::ExperimentOptions options;
  options.checkpoint_interval_env_steps = interval_env_steps;
  options.first_checkpoint_after = absl::Seconds(10);
  options.longest_checkpoint_pause = absl::Seconds(60);
  return options;
}

TEST(CheckpointScheduleTest, ASlowRunSavesByTime) {
  base::FakeClock clock;
  clock.Advance(absl::Hours(5));  // its zero means nothing
  CheckpointSchedule schedule(Auto(1'000'000), &clock);
  EXPECT_FALSE(schedule.IsDue(0, 10));
  clock.Advance(absl::Milliseconds(9'999));
  EXPECT_FALSE(schedule.IsDue(10, 20));
  clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(schedule.IsDue(20, 30));
  EXPECT_TRUE(schedule.IsDue(30, 40)) << "until one is saved";
  schedule.NoteSaved();
  clock.Advance(absl::Milliseconds(59'999));
  EXPECT_FALSE(schedule.IsDue(40, 50));
  clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(schedule.IsDue(50, 60));
}

TEST(CheckpointScheduleTest, AFastRunSavesByEnvSteps) {
  base::FakeClock clock;
  CheckpointSchedule schedule(Auto(100), &clock);
  int saved = 0;
  for (int64_t now = 40; now <= 2'000; now += 40) {
    clock.Advance(absl::Seconds(1));
    if (!schedule.IsDue(now - 40, now)) continue;
    schedule.NoteSaved();
    ++saved;
  }
  EXPECT_EQ(saved, 20) << "in 50 s, and none more for the time";
}

TEST(CheckpointScheduleTest, WithoutAnIntervalNoneIsDue) {
  base::FakeClock clock;
  config::ExperimentOptions options;
  options.checkpoint_interval_env_steps = 0;
  CheckpointSchedule schedule(options, &clock);
  clock.Advance(absl::Hours(1000));
  EXPECT_FALSE(schedule.IsDue(0, 1'000'000));
  schedule.NoteSaved();
  clock.Advance(absl::Hours(1000));
  EXPECT_FALSE(schedule.IsDue(0, 1'000'000));
}

}  // namespace
}  // namespace troupe::run
