#include "lib/training/core/schedule.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::ScheduleUnit;
using policy::ScheduleValue;

ScheduleTime AfterEnvSteps(int64_t env_steps) { return {.env_steps = env_steps, .updates = 99}; }
bool IsMoved(const ScheduleValue& schedule) {
  return Moves({.name = "x", .options = {{"flag", true}, {"rate", schedule}}});
}

TEST(ScheduleTest, FromInitialToFinal) {
  const ScheduleValue rate{1, 3, 10};
  EXPECT_TRUE(IsMoved(rate));
  EXPECT_FALSE(IsMoved(ScheduleValue{1, 1, 0}));
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(0)), 1);
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(5)), 2);
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(10)), 3);
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(11)), 3);
}

TEST(ScheduleTest, FromPointToPoint) {
  const ScheduleValue rate = ScheduleValue::OfPoints({{10, 1}, {20, 3}, {40, 0}}, ScheduleUnit::kEnvSteps);
  EXPECT_TRUE(IsMoved(rate));
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(0)), 1) << "before the first";
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(10)), 1);
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(15)), 2);
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(20)), 3);
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(30)), 1.5);
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(40)), 0);
  EXPECT_EQ(ValueAt(rate, AfterEnvSteps(1000)), 0) << "after the last";
}

TEST(ScheduleTest, ByUpdates) {
  const ScheduleValue rate = ScheduleValue::OfPoints({{0, 1}, {4, 5}}, ScheduleUnit::kUpdates);
  EXPECT_EQ(ValueAt(rate, {1000, 0}), 1);
  EXPECT_EQ(ValueAt(rate, {0, 3}), 4);
  EXPECT_FALSE(IsMoved(ScheduleValue::OfPoints({{3, 2}}, ScheduleUnit::kUpdates)));
}

TEST(ScheduleTest, PointsAscendAndAreFew) {
  const auto check = [](std::vector<policy::SchedulePoint> points) {
    const policy::AlgorithmSpec spec = {
        .name = "x", .options = {{"lr", ScheduleValue::OfPoints(std::move(points), ScheduleUnit::kEnvSteps)}}};
    const auto form = FormAtAllTimes(spec, [](const ScheduleTime&) { return StateForm{}; });
    return std::string(form.status().message());
  };
  std::vector<policy::SchedulePoint> many;
  for (int64_t i = 0; i < 64; ++i) many.push_back({i, 1});
  EXPECT_EQ(check(many), "");
  many.push_back({64, 1});
  EXPECT_EQ(check(many), "algorithm.lr.points is 65; expected at most 64");
  EXPECT_EQ(check({{3, 1}, {3, 2}}), "algorithm.lr.points is 3; expected times that ascend, the next one above 3");
  EXPECT_EQ(check({{-1, 1}}), "algorithm.lr.points is -1; expected times that ascend, the next one above -1");
}

}  // namespace
}  // namespace troupe::training
