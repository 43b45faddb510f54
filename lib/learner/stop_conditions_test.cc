#include "lib/learner/stop_conditions.h"

#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

TEST(StopConditionsTest, CountsStopAtTheirLimit) {
  StopOptions options;
  EXPECT_EQ(StopByCounts(options, {1 << 30, 1 << 30, 1 << 30}), std::nullopt) << "0 is not set";
  options.env_steps = 100;
  EXPECT_EQ(StopByCounts(options, {99, 1000, 1000}), std::nullopt);
  EXPECT_EQ(StopByCounts(options, {100, 0, 0}), "stop.env_steps reached: 100 of 100");
  options = {};
  options.agent_steps = 7;
  EXPECT_EQ(StopByCounts(options, {1, 8, 1}), "stop.agent_steps reached: 8 of 7");
  options = {};
  options.updates = 3;
  EXPECT_EQ(StopByCounts(options, {1, 1, 2}), std::nullopt);
  EXPECT_EQ(StopByCounts(options, {1, 1, 3}), "stop.updates reached: 3 of 3");
}

TEST(StopConditionsTest, TimeAndReturn) {
  StopOptions options;
  EXPECT_EQ(StopByTimeOrReturn(options, absl::Hours(1000), 1e9), std::nullopt);
  options.wall_clock = absl::Seconds(60);
  EXPECT_EQ(StopByTimeOrReturn(options, absl::Seconds(59), std::nullopt), std::nullopt);
  EXPECT_EQ(StopByTimeOrReturn(options, absl::Seconds(61), std::nullopt), "stop.wall_clock reached: 61 of 60 s");
  options = {};
  options.has_episode_return = true;
  options.episode_return = -30;
  EXPECT_EQ(StopByTimeOrReturn(options, absl::ZeroDuration(), std::nullopt), std::nullopt);
  EXPECT_EQ(StopByTimeOrReturn(options, absl::ZeroDuration(), -30.5), std::nullopt);
  EXPECT_EQ(StopByTimeOrReturn(options, absl::ZeroDuration(), -29.5), "stop.episode_return reached: -29.5 of -30");
}

}  // namespace
}  // namespace troupe::learner
