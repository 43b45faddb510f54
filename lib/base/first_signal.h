#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace troupe::base {

/// The first signal that asks a process to end in order. A second one ends it at once, unless it is a copy: GNU
/// `timeout` and some batch systems send a signal to a process and then to its process group.
///
/// Thread-safe and lock-free: a signal handler may use it.
class FirstSignal {
 public:
  /// A signal of the first one's kind within this time is a copy of it.
  static constexpr int64_t kCopyMs = 1000;

  enum class Meaning : uint8_t {
    kFirst,   ///< end in order
    kCopy,    ///< of the first one: nothing new
    kAtOnce,  ///< end at once
  };

  /// `now_ms`: of a clock that never goes back.
  Meaning Take(int signal, int64_t now_ms) {
    int64_t first = 0;
    if (first_.compare_exchange_strong(first, (now_ms << kSignalBits) | signal, std::memory_order_relaxed)) {
      return Meaning::kFirst;
    }
    const bool copy = SignalOf(first) == signal && now_ms - (first >> kSignalBits) < kCopyMs;
    return copy ? Meaning::kCopy : Meaning::kAtOnce;
  }
  /// By the steady clock, of which clock_gettime is safe in a signal handler, too.
  Meaning TakeNow(int signal) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return Take(signal, int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000);
  }
  /// 0: none yet.
  int signal() const { return SignalOf(first_.load(std::memory_order_relaxed)); }

 private:
  static constexpr int kSignalBits = 8;
  static int SignalOf(int64_t first) { return static_cast<int>(first & ((1 << kSignalBits) - 1)); }

  std::atomic<int64_t> first_{0};  ///< when it came, and which: one word, so that no handler sees half of it
};

}  // namespace troupe::base
