#include "lib/base/line_quota.h"

#include "lib/base/clock.h"
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(LineQuotaTest, SomeAtOnceThenSoManyASecondAndTheRestIsCounted) {
  FakeClock clock;
  LineQuota quota({.burst = 3, .per_second = 0.5}, &clock);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(quota.Take(), 0);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(quota.Take().has_value());
  clock.Advance(absl::Seconds(1));
  EXPECT_FALSE(quota.Take().has_value()) << "half a line";
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(quota.Take(), 1001);
  EXPECT_FALSE(quota.Take().has_value());
  clock.Advance(absl::Hours(1));
  EXPECT_EQ(quota.Take(), 1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(quota.Take(), 0) << "no more than the burst, however quiet it was";
  EXPECT_FALSE(quota.Take().has_value());
}

}  // namespace
}  // namespace troupe::base
