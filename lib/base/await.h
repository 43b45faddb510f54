#pragma once

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace troupe::base {

/// A moment on the steady clock, which no change of the wall clock moves: the end of a wait. Plain value.
class Deadline {
 public:
  /// `timeout` from now, at once for what is not above 0; InfiniteDuration(): never.
  static Deadline After(absl::Duration timeout, const Clock& clock = Clock::Real()) {
    return Deadline(clock.SteadyNow() + timeout, &clock);
  }

  /// Until then; 0 when it has passed.
  absl::Duration left() const {
    const absl::Duration left = at_ - clock_->SteadyNow();
    return left > absl::ZeroDuration() ? left : absl::ZeroDuration();
  }
  bool passed() const { return left() == absl::ZeroDuration(); }
  /// On the clock that it was made with.
  absl::Duration at() const { return at_; }

 private:
  Deadline(absl::Duration at, const Clock* clock) : at_(at), clock_(clock) {}

  absl::Duration at_;
  const Clock* clock_;
};

/// Blocks until `condition` holds or `deadline` has passed; what the condition is then. It is asked with the mutex
/// held:
///
///   Await(changed_, &mutex_, Deadline::After(timeout), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return done_;
///   })
template <typename Condition>
bool Await(CondVar& changed, Mutex* mutex, const Deadline& deadline, Condition&& condition)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

// The analysis does not know that the condition's mutex is this one.
template <typename Condition>
bool Await(CondVar& changed, Mutex* mutex, const Deadline& deadline,
           Condition&& condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  while (!condition()) {
    const absl::Duration left = deadline.left();
    if (left == absl::ZeroDuration()) return false;
    changed.WaitFor(mutex, left);
  }
  return true;
}

/// The same for a condition that nobody notifies of, as what a signal handler says: asks every `interval`.
template <typename Condition>
bool AwaitPolling(absl::Duration interval, const Deadline& deadline, Condition&& condition) {
  while (!condition()) {
    const absl::Duration left = deadline.left();
    if (left == absl::ZeroDuration()) return false;
    absl::SleepFor(std::min(interval, left));
  }
  return true;
}

}  // namespace troupe::base
