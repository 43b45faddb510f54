#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace troupe::envhost {

/// How long something has been waited for, for a deadline: of the time between two looks at most kMaxGap counts, so
/// that a process that could not go on because nobody looked (its pipe was full of prints) still has its time. Times
/// are a steady clock's. Not thread-safe.
class WatchedTime {
 public:
  static constexpr absl::Duration kMaxGap = absl::Milliseconds(50);

  explicit WatchedTime(absl::Duration now) : looked_at_(now) {}
  void Restart(absl::Duration now) {
    waited_ = absl::ZeroDuration();
    looked_at_ = now;
  }
  /// Somebody looks. What counts since Restart.
  absl::Duration Look(absl::Duration now) {
    waited_ += std::min(now - looked_at_, kMaxGap);
    looked_at_ = now;
    return waited_;
  }

 private:
  absl::Duration waited_ = absl::ZeroDuration();
  absl::Duration looked_at_;
};

}  // namespace troupe::envhost
