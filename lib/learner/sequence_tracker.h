#pragma once

#include <cstdint>
#include <set>

namespace troupe::learner {

/// Which sequence numbers of one worker have their disposition. Sequences begin at 1; each gets one disposition, a
/// repeat is a duplicate. Not thread-safe.
///
/// Invariants: 1. Every sequence <= watermark() has its disposition; watermark() + 1 has none. 2. watermark() never
/// falls. Holds at most kMaxGap numbers out of order.
class SequenceTracker {
 public:
  enum class Fate {
    kNew,        ///< has no disposition yet
    kDuplicate,  ///< has one
    kTooFar,     ///< 0, or more than kMaxGap ahead of the watermark: no honest worker sends that
  };
  static constexpr uint64_t kMaxGap = 1 << 16;

  explicit SequenceTracker(uint64_t watermark = 0) : watermark_(watermark) {}

  Fate Look(uint64_t sequence) const;
  /// Gives `sequence`, which must be kNew, its disposition.
  void Mark(uint64_t sequence);
  /// The worker will send nothing below `next_sequence` any more. Returns how many sequences below it had no
  /// disposition: fragments that were acknowledged by an earlier learner epoch, or that nobody can tell of.
  uint64_t SkipTo(uint64_t next_sequence);

  uint64_t watermark() const { return watermark_; }

 private:
  void Advance();

  uint64_t watermark_;
  std::set<uint64_t> ahead_;  ///< above watermark_ + 1
};

}  // namespace troupe::learner
