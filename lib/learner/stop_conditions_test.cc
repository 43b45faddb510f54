#include "lib/learner/stop_conditions.h"

#include <map>
#include <optional>
#include <string>

#include "lib/policy/policy_spec.h"
#include "lib/policy/testing/slots.h"
#include "lib/sample/testing/batch_maker.h"
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

TEST(StopConditionsTest, ReturnsStopOverAFullWindow) {
  const policy::PolicySpec spec = sample::SimpleSchema().policies[policy::PolicySlot(0)];
  const policy::PolicyTablePtr table = *policy::PolicyTable::Make({spec}, {true}, {{"*", {{spec.id}}}}, {"cat"});
  StopOptions options;
  options.env_steps = 1;
  options.wall_clock = absl::Seconds(1);
  options.episode_return = {{Score{}, 2.0}};
  EpisodeStats window(1, 1);
  for (int i = 0; i < 99; ++i) window.Add(10, {2.5}, policy::SlotsForTesting({0}));
  EXPECT_EQ(StopByReturns(options, window, *table), std::nullopt) << "99 episodes say little";
  window.Add(10, {2.5}, policy::SlotsForTesting({0}));
  EXPECT_EQ(StopByReturns(options, window, *table), "stop.episode_return reached: 2.5 of 2");
  options.episode_return[0].at_least = 2.6;
  EXPECT_EQ(StopByReturns(options, window, *table), std::nullopt);
  options.episode_return.clear();
  EXPECT_EQ(StopByReturns(options, window, *table), std::nullopt);
}

/// What StopByTimeOrReturn reads: by a score's text; absent: the window is not full, or nobody played.
using Scores = std::map<std::string, double>;
auto Reader(const Scores& scores) {
  return [&scores](const Score& score) -> std::optional<double> {
    const auto found = scores.find(score.Text());
    return found == scores.end() ? std::nullopt : std::optional<double>(found->second);
  };
}

std::optional<std::string> Stop(const StopOptions& options, absl::Duration wall_clock, const Scores& scores) {
  return StopByTimeOrReturn(options, wall_clock, Reader(scores));
}

TEST(StopConditionsTest, TimeAndReturn) {
  StopOptions options;
  EXPECT_EQ(Stop(options, absl::Hours(1000), {{"sum", 1e9}}), std::nullopt);
  options.wall_clock = absl::Seconds(60);
  EXPECT_EQ(Stop(options, absl::Seconds(59), {}), std::nullopt);
  EXPECT_EQ(Stop(options, absl::Seconds(61), {}), "stop.wall_clock reached: 61 of 60 s");
  options = {};
  options.episode_return = {{Score{}, -30}};
  EXPECT_EQ(Stop(options, absl::ZeroDuration(), {}), std::nullopt);
  EXPECT_EQ(Stop(options, absl::ZeroDuration(), {{"sum", -30.5}}), std::nullopt);
  EXPECT_EQ(Stop(options, absl::ZeroDuration(), {{"sum", -29.5}}), "stop.episode_return reached: -29.5 of -30");
}

TEST(StopConditionsTest, AllReturnsMustBeReached) {
  StopOptions options;
  options.episode_return = {{*ParseScore("policy:hunter"), 3}, {*ParseScore("sum"), 0}};
  EXPECT_EQ(Stop(options, absl::ZeroDuration(), {{"policy:hunter", 4}}), std::nullopt);
  EXPECT_EQ(Stop(options, absl::ZeroDuration(), {{"policy:hunter", 4}, {"sum", -1}}), std::nullopt);
  EXPECT_EQ(Stop(options, absl::ZeroDuration(), {{"policy:hunter", 2}, {"sum", 1}}), std::nullopt);
  EXPECT_EQ(Stop(options, absl::ZeroDuration(), {{"policy:hunter", 3}, {"sum", 0.5}}),
            "stop.episode_return reached: policy:hunter 3 of 3, 0.5 of 0");
}

TEST(StopConditionsTest, TheNearestEndIsOfWhicheverComesFirst) {
  StopOptions options;
  EXPECT_EQ(NearestEnd(options, {1000, 0, 1}, absl::Seconds(10), 100).left, std::nullopt) << "open end";
  EXPECT_EQ(NearestEnd(options, {1000, 0, 1}, absl::Seconds(10), 100).fraction, 0);
  options.env_steps = 100'000'000;
  options.wall_clock = absl::Seconds(45);
  RunEnd end = NearestEnd(options, {1000, 0, 1}, absl::Seconds(10), 100);
  EXPECT_EQ(end.left, absl::Seconds(35));
  EXPECT_DOUBLE_EQ(end.fraction, 10.0 / 45);
  options.env_steps = 2000;
  end = NearestEnd(options, {1000, 0, 1}, absl::Seconds(10), 100);
  EXPECT_EQ(end.left, absl::Seconds(10));
  EXPECT_DOUBLE_EQ(end.fraction, 0.5);
  options.updates = 5;  // an update is 250 env steps so far: 250 more
  EXPECT_EQ(NearestEnd(options, {1000, 0, 4}, absl::Seconds(10), 100).left, absl::Seconds(2.5));
  options.agent_steps = 2100;  // two an env step
  EXPECT_EQ(NearestEnd(options, {1000, 2000, 4}, absl::Seconds(10), 100).left, absl::Seconds(0.5));
  options = {};
  options.env_steps = 2000;
  end = NearestEnd(options, {1000, 0, 1}, absl::Seconds(10), 0);
  EXPECT_EQ(end.left, std::nullopt) << "nothing moves";
  EXPECT_DOUBLE_EQ(end.fraction, 0.5);
  EXPECT_EQ(NearestEnd(options, {2100, 0, 1}, absl::Seconds(10), 10).fraction, 1);
}

}  // namespace
}  // namespace troupe::learner
