#include "lib/base/token_bucket.h"

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(TokenBucketTest, SomeAtOnceThenSoManyASecondAndNeverMoreThanTheBurst) {
  absl::Duration now = absl::Seconds(7);
  TokenBucket bucket({.burst = 3, .per_second = 4}, now);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(now)) << i;
  EXPECT_FALSE(bucket.Take(now));
  EXPECT_EQ(bucket.UntilNext(now), absl::Milliseconds(250));
  now += absl::Milliseconds(125);
  EXPECT_FALSE(bucket.Take(now)) << "half a token";
  EXPECT_EQ(bucket.UntilNext(now), absl::Milliseconds(125)) << "a refusal costs nothing";
  now += absl::Milliseconds(125);
  EXPECT_TRUE(bucket.Take(now));
  now += absl::Hours(1);
  EXPECT_EQ(bucket.Level(now), 3);
  EXPECT_EQ(bucket.UntilNext(now), absl::ZeroDuration());
  EXPECT_TRUE(bucket.Take(now));
  bucket.Give(10);
  EXPECT_EQ(bucket.Level(now), 3);
}

TEST(TokenBucketTest, AClockThatStepsBackGivesNothing) {
  TokenBucket bucket({.burst = 1, .per_second = 1}, absl::Seconds(10));
  EXPECT_TRUE(bucket.Take(absl::Seconds(10)));
  EXPECT_FALSE(bucket.Take(absl::Seconds(2)));
  EXPECT_FALSE(bucket.Take(absl::Seconds(10.5)));
  EXPECT_TRUE(bucket.Take(absl::Seconds(11)));
}

}  // namespace
}  // namespace troupe::base
