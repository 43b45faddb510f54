#include "lib/learner/feed.h"

#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

TEST(FeedClockTest, TheOnlyFeedOfARunCountsVersions) {
  FeedClock clock(5);
  EXPECT_EQ(clock.Lag(5), 0);
  EXPECT_EQ(clock.Lag(3), 2) << "before it was looked at";
  for (int64_t version = 6; version < 300; ++version) clock.Published(version);
  EXPECT_EQ(clock.updates(), 299);
  for (const int64_t version : {3, 5, 170, 298, 299}) EXPECT_EQ(clock.Lag(version), 299 - version);
}

TEST(FeedClockTest, OneOfSeveralCountsItsOwnUpdates) {
  FeedClock clock(/*updates=*/2, /*version=*/10);
  clock.Published(12);
  clock.Published(15);
  EXPECT_EQ(clock.updates(), 4);
  EXPECT_EQ(clock.Lag(15), 0);
  EXPECT_EQ(clock.Lag(16), 0) << "others were published since";
  EXPECT_EQ(clock.Lag(14), 1);
  EXPECT_EQ(clock.Lag(12), 1);
  EXPECT_EQ(clock.Lag(11), 2);
  EXPECT_EQ(clock.Lag(10), 2);
}

TEST(FeedSpecTest, ALagIsInBatches) {
  EXPECT_EQ(FeedSpec{}.MaxLagInUpdates(16), 16);
  EXPECT_EQ(FeedSpec{.max_policy_lag = 4}.MaxLagInUpdates(16), 4) << "its own";
  // Two updates a batch; at its last use a batch is older by the three others of the buffer and itself.
  const FeedSpec reused{.uses = 2, .max_ahead = 3};
  EXPECT_EQ(reused.MaxLagInUpdates(16), 2 * 16 + 4);
  EXPECT_EQ(reused.MaxLagInUpdates(0), 4);
}

}  // namespace
}  // namespace troupe::learner
