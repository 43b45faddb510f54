#include "lib/learner/sequence_tracker.h"

#include <iterator>

#include "lib/base/check.h"

namespace troupe::learner {

SequenceTracker::Fate SequenceTracker::Look(uint64_t sequence) const {
  if (sequence == 0) return Fate::kTooFar;
  if (sequence <= watermark_ || ahead_.count(sequence) > 0) return Fate::kDuplicate;
  return sequence - watermark_ > kMaxGap ? Fate::kTooFar : Fate::kNew;
}

void SequenceTracker::Mark(uint64_t sequence) {
  TROUPE_CHECK(Look(sequence) == Fate::kNew);
  ahead_.insert(sequence);
  Advance();
}

uint64_t SequenceTracker::SkipTo(uint64_t next_sequence) {
  if (next_sequence == 0 || next_sequence - 1 <= watermark_) return 0;
  const auto end = ahead_.lower_bound(next_sequence);
  const auto known = static_cast<uint64_t>(std::distance(ahead_.begin(), end));
  const uint64_t gap = next_sequence - 1 - watermark_ - known;
  ahead_.erase(ahead_.begin(), end);
  watermark_ = next_sequence - 1;
  Advance();
  return gap;
}

void SequenceTracker::Advance() {
  while (!ahead_.empty() && *ahead_.begin() == watermark_ + 1) {
    ++watermark_;
    ahead_.erase(ahead_.begin());
  }
}

}  // namespace troupe::learner
