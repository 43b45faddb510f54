#include "lib/training/core/schedule.h"

#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::ScheduleUnit;
using policy::ScheduleValue;

TEST(LinearScheduleTest, ANumberIsConstant) {
  const LinearSchedule rate = 0.5;
  EXPECT_TRUE(rate.is_constant());
  EXPECT_EQ(rate.At({0, 0}), 0.5);
  EXPECT_EQ(rate.At({1 << 30, 5}), 0.5);
}

TEST(LinearScheduleTest, FromInitialToFinal) {
  const LinearSchedule rate(1, 3, 10);
  EXPECT_FALSE(rate.is_constant());
  EXPECT_EQ(rate.At({0, 99}), 1);
  EXPECT_EQ(rate.At({5, 0}), 2);
  EXPECT_EQ(rate.At({10, 0}), 3);
  EXPECT_EQ(rate.At({11, 0}), 3);
}

TEST(LinearScheduleTest, FromPointToPoint) {
  const LinearSchedule rate(ScheduleValue::OfPoints({{10, 1}, {20, 3}, {40, 0}}, ScheduleUnit::kEnvSteps));
  EXPECT_EQ(rate.initial, 1);
  EXPECT_EQ(rate.final, 0);
  EXPECT_FALSE(rate.is_constant());
  EXPECT_EQ(rate.At({0, 99}), 1) << "before the first";
  EXPECT_EQ(rate.At({10, 0}), 1);
  EXPECT_EQ(rate.At({15, 0}), 2);
  EXPECT_EQ(rate.At({20, 0}), 3);
  EXPECT_EQ(rate.At({30, 0}), 1.5);
  EXPECT_EQ(rate.At({40, 0}), 0);
  EXPECT_EQ(rate.At({1000, 0}), 0) << "after the last";
}

TEST(LinearScheduleTest, ByUpdates) {
  const LinearSchedule rate(ScheduleValue::OfPoints({{0, 1}, {4, 5}}, ScheduleUnit::kUpdates));
  EXPECT_EQ(rate.At({1000, 0}), 1);
  EXPECT_EQ(rate.At({0, 3}), 4);
  EXPECT_TRUE(LinearSchedule(ScheduleValue::OfPoints({{3, 2}}, ScheduleUnit::kUpdates)).is_constant());
}

}  // namespace
}  // namespace troupe::training
