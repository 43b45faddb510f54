#include "lib/rpc/transport/grpc_deadline.h"

#include "gtest/gtest.h"

namespace troupe::rpc {
namespace {

TEST(GrpcDeadlineTest, IsOfTheSteadyClock) {
  const gpr_timespec before = gpr_now(GPR_CLOCK_MONOTONIC);
  const gpr_timespec deadline = GrpcDeadline(absl::Milliseconds(1500));
  const gpr_timespec after = gpr_now(GPR_CLOCK_MONOTONIC);
  ASSERT_EQ(deadline.clock_type, GPR_CLOCK_MONOTONIC);
  const gpr_timespec timeout = gpr_time_from_millis(1500, GPR_TIMESPAN);
  EXPECT_GE(gpr_time_cmp(deadline, gpr_time_add(before, timeout)), 0);
  EXPECT_LE(gpr_time_cmp(deadline, gpr_time_add(after, timeout)), 0);
}

TEST(GrpcDeadlineTest, WhatIsPastIsNowAndWithoutEndIsFar) {
  const gpr_timespec before = gpr_now(GPR_CLOCK_MONOTONIC);
  EXPECT_GE(gpr_time_cmp(GrpcDeadline(-absl::Hours(1)), before), 0);
  const gpr_timespec years = gpr_time_from_hours(24 * 365, GPR_TIMESPAN);
  EXPECT_GE(gpr_time_cmp(GrpcDeadline(absl::InfiniteDuration()), gpr_time_add(before, years)), 0);
}

}  // namespace
}  // namespace troupe::rpc
