#pragma once

#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace troupe::base {

/// Source of time. Intervals use SteadyNow (never goes back; its zero means nothing); WallNow is for display only.
/// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Time since an arbitrary fixed point, monotone.
  virtual absl::Duration SteadyNow() const = 0;
  virtual absl::Time WallNow() const = 0;

  /// The machine's clock; lives for ever.
  static Clock& Real();
};

/// A clock that moves only when told. For tests.
class FakeClock final : public Clock {
 public:
  absl::Duration SteadyNow() const override;
  absl::Time WallNow() const override;
  void Advance(absl::Duration by);

 private:
  mutable Mutex mutex_;
  absl::Duration elapsed_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

}  // namespace troupe::base
