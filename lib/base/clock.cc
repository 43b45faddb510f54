#include "lib/base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace troupe::base {
namespace {

class RealClock final : public Clock {
 public:
  absl::Duration SteadyNow() const override {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
  absl::Time WallNow() const override { return absl::Now(); }
};

}  // namespace

Clock& Clock::Real() {
  static RealClock clock;
  return clock;
}

absl::Duration FakeClock::SteadyNow() const {
  MutexLock lock(&mutex_);
  return elapsed_;
}

absl::Time FakeClock::WallNow() const { return absl::UnixEpoch() + SteadyNow(); }

void FakeClock::Advance(absl::Duration by) {
  MutexLock lock(&mutex_);
  elapsed_ += by;
}

}  // namespace troupe::base
