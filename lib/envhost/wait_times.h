#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace troupe::envhost {

/// How long waits for a process's answers last, averaged over the last ones, and what follows from it for the next one.
/// Thread-safe.
class WaitTimes {
 public:
  /// Naps in a wait of the usual length: one of them may be overslept, and the next wait is shorter by that.
  static constexpr int kNapsAWait = 4;
  /// Timers are not exact enough for shorter ones; beside longer ones a wake costs nothing.
  static constexpr absl::Duration kShortestNap = absl::Microseconds(100), kLongestNap = absl::Milliseconds(2);

  void Learn(absl::Duration took) {
    const int64_t usual = usual_ns_.load(std::memory_order_relaxed);
    usual_ns_.store(usual + (absl::ToInt64Nanoseconds(took) - usual) / 8, std::memory_order_relaxed);
  }

  /// How long to sleep between looks for one who sleeps by the clock. Zero: it should be woken instead.
  absl::Duration Nap() const {
    const absl::Duration nap = absl::Nanoseconds(usual_ns_.load(std::memory_order_relaxed)) / kNapsAWait;
    return nap < kShortestNap || nap > kLongestNap ? absl::ZeroDuration() : nap;
  }

 private:
  std::atomic<int64_t> usual_ns_{0};
};

}  // namespace troupe::envhost
