#include "lib/sample/env_report.h"

#include <deque>

#include "lib/base/philox.h"
#include <gtest/gtest.h>

namespace troupe::sample {
namespace {

TEST(EpisodeOutcomesTest, AreThoseOfTheLastHundred) {
  EpisodeOutcomes outcomes;
  std::deque<bool> expected;
  base::PhiloxSequence random(base::PhiloxKey::Make(3, base::RandomStream::kReset), {});
  for (int i = 0; i < 1000; ++i) {
    const bool failed = random.Below(3) == 0;
    outcomes.Add(failed);
    expected.push_back(failed);
    if (expected.size() > 100) expected.pop_front();
    int32_t failures = 0;
    for (const bool was : expected) failures += static_cast<int32_t>(was);
    ASSERT_EQ(outcomes.recent(), (RecentEpisodes{static_cast<int32_t>(expected.size()), failures})) << i;
  }
}

TEST(RecentEpisodesTest, BeyondAShareOfAtLeastTwenty) {
  EXPECT_FALSE((RecentEpisodes{19, 19}).Beyond(0.5)) << "too few to say";
  EXPECT_TRUE((RecentEpisodes{20, 20}).Beyond(0.5));
  EXPECT_FALSE((RecentEpisodes{100, 50}).Beyond(0.5)) << "the share itself is allowed";
  EXPECT_TRUE((RecentEpisodes{100, 51}).Beyond(0.5));
  EXPECT_FALSE((RecentEpisodes{100, 100}).Beyond(1.0)) << "1 is never exceeded";
  EXPECT_TRUE((RecentEpisodes{100, 1}).Beyond(0.0));
  EXPECT_FALSE((RecentEpisodes{100, 0}).Beyond(0.0));
}

}  // namespace
}  // namespace troupe::sample
