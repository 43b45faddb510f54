#include "lib/learner/grant_limit.h"

#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

TEST(GrantLimitTest, BeforeTheFirstDeliveryByWhatIsAllowedThenByTheSlowest) {
  GrantTimeout timeout;
  timeout.first = absl::Seconds(30);
  timeout.first_per_env_step = absl::Seconds(2);
  GrantLimit limit(timeout);
  EXPECT_EQ(limit.Of(100), absl::Seconds(230));
  EXPECT_EQ(limit.Of(1'000'000), absl::Seconds(600)) << "at most";
  limit.Delivered(absl::Seconds(1));
  EXPECT_EQ(limit.Of(100), absl::Seconds(60)) << "at least";
  limit.Delivered(absl::Seconds(20));
  EXPECT_EQ(limit.Of(100), absl::Seconds(200));
  limit.Delivered(absl::Seconds(90));
  EXPECT_EQ(limit.Of(100), absl::Seconds(600)) << "nobody stretches it by being slower each time";
}

TEST(GrantLimitTest, TheSlowestOfTheLastHundred) {
  GrantLimit limit({});
  limit.Delivered(absl::Seconds(20));
  for (int i = 0; i < 99; ++i) limit.Delivered(absl::Seconds(7));
  EXPECT_EQ(limit.Of(1), absl::Seconds(200));
  limit.Delivered(absl::Seconds(7));
  EXPECT_EQ(limit.Of(1), absl::Seconds(70));
}

TEST(GrantLimitTest, AGivenOneIsTheLimit) {
  GrantTimeout timeout;
  timeout.fixed = absl::Seconds(5);
  GrantLimit limit(timeout);
  EXPECT_EQ(limit.Of(1'000'000), absl::Seconds(5));
  limit.Delivered(absl::Seconds(40));
  EXPECT_EQ(limit.Of(1), absl::Seconds(5));
}

}  // namespace
}  // namespace troupe::learner
