#include "lib/base/backoff.h"

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(BackoffTest, GrowsToItsCapWithJitter) {
  Backoff backoff({absl::Milliseconds(100), absl::Milliseconds(800), 2.0, absl::InfiniteDuration()}, 1);
  absl::Duration bound = absl::Milliseconds(100);
  for (int i = 0; i < 10; ++i) {
    const auto delay = backoff.NextDelay();
    ASSERT_TRUE(delay.has_value());
    EXPECT_GE(*delay, bound * 0.5);
    EXPECT_LE(*delay, bound);
    bound = std::min(bound * 2, absl::Milliseconds(800));
  }
  EXPECT_EQ(backoff.tries(), 10);
}

TEST(BackoffTest, StopsWhenTheBudgetIsSpentAndStartsAgainAfterReset) {
  Backoff backoff({absl::Milliseconds(100), absl::Milliseconds(100), 2.0, absl::Milliseconds(250)}, 2);
  absl::Duration total = absl::ZeroDuration();
  int tries = 0;
  while (const auto delay = backoff.NextDelay()) {
    total += *delay;
    ++tries;
  }
  EXPECT_EQ(total, absl::Milliseconds(250));
  EXPECT_GE(tries, 3);
  backoff.Reset();
  EXPECT_TRUE(backoff.NextDelay().has_value());
}

TEST(BackoffTest, SeedsDiffer) {
  Backoff a({}, 1), b({}, 2);
  EXPECT_NE(*a.NextDelay(), *b.NextDelay());
}

}  // namespace
}  // namespace troupe::base
