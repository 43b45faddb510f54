#include "lib/learner/sequence_tracker.h"

#include <set>

#include "lib/base/philox.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using Fate = SequenceTracker::Fate;

TEST(SequenceTrackerTest, WatermarkIsContiguous) {
  SequenceTracker tracker;
  EXPECT_EQ(tracker.Look(0), Fate::kTooFar);
  EXPECT_EQ(tracker.Look(1), Fate::kNew);
  tracker.Mark(1);
  tracker.Mark(3);
  EXPECT_EQ(tracker.watermark(), 1u);
  EXPECT_EQ(tracker.Look(1), Fate::kDuplicate);
  EXPECT_EQ(tracker.Look(2), Fate::kNew);
  EXPECT_EQ(tracker.Look(3), Fate::kDuplicate);
  tracker.Mark(2);
  EXPECT_EQ(tracker.watermark(), 3u);
}

TEST(SequenceTrackerTest, TheWindowIsBounded) {
  SequenceTracker tracker(100);
  EXPECT_EQ(tracker.Look(100 + SequenceTracker::kMaxGap), Fate::kNew);
  EXPECT_EQ(tracker.Look(101 + SequenceTracker::kMaxGap), Fate::kTooFar);
  EXPECT_EQ(tracker.Look(~uint64_t{0}), Fate::kTooFar);
}

TEST(SequenceTrackerTest, SkipCountsWhatNobodyTells) {
  SequenceTracker tracker(10);
  tracker.Mark(12);
  tracker.Mark(16);
  EXPECT_EQ(tracker.SkipTo(5), 0u) << "it never goes back";
  EXPECT_EQ(tracker.watermark(), 10u);
  EXPECT_EQ(tracker.SkipTo(15), 3u) << "11, 13 and 14";
  EXPECT_EQ(tracker.watermark(), 14u);
  tracker.Mark(15);
  EXPECT_EQ(tracker.watermark(), 16u);
  EXPECT_EQ(tracker.SkipTo(0), 0u);
}

/// Against a plain set, in random order with repeats.
TEST(SequenceTrackerTest, EqualsASet) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    base::PhiloxSequence random(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {});
    SequenceTracker tracker;
    std::set<uint64_t> known;
    for (int i = 0; i < 2000; ++i) {
      const uint64_t sequence =
          1 + tracker.watermark() + random.Below(40) - std::min<uint64_t>(tracker.watermark(), 10);
      const bool repeat = !known.insert(sequence).second;
      ASSERT_EQ(tracker.Look(sequence), repeat ? Fate::kDuplicate : Fate::kNew);
      if (!repeat) tracker.Mark(sequence);
      uint64_t watermark = 0;
      while (known.count(watermark + 1) > 0) ++watermark;
      ASSERT_EQ(tracker.watermark(), watermark);
    }
  }
}

}  // namespace
}  // namespace troupe::learner
