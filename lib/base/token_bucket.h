#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace troupe::base {

/// So many at once, and so many a second from there.
struct Rate {
  double burst = 0;
  double per_second = 0;
};

/// A token bucket: full at first, it fills at its rate up to the burst. Time is the caller's (Clock::SteadyNow). Not
/// thread-safe.
class TokenBucket {
 public:
  TokenBucket(const Rate& rate, absl::Duration now) : rate_(rate), level_(rate.burst), at_(now) {}

  /// False where there is no whole token; nothing is taken then.
  bool Take(absl::Duration now) {
    Fill(now);
    if (level_ < 1) return false;
    level_ -= 1;
    return true;
  }
  /// Takes `tokens` whether they are there or not: the level may fall below 0.
  void Spend(double tokens, absl::Duration now) {
    Fill(now);
    level_ -= tokens;
  }
  void Give(double tokens) { level_ = std::min(rate_.burst, level_ + tokens); }
  /// What is left of the burst.
  double Level(absl::Duration now) {
    Fill(now);
    return level_;
  }
  /// Until there is a whole token; the rate is not 0.
  absl::Duration UntilNext(absl::Duration now) {
    return absl::Seconds(std::max(0.0, 1 - Level(now)) / rate_.per_second);
  }

 private:
  void Fill(absl::Duration now) {
    if (now <= at_) return;
    level_ = std::min(rate_.burst, level_ + rate_.per_second * absl::ToDoubleSeconds(now - at_));
    at_ = now;
  }

  Rate rate_;
  double level_;
  absl::Duration at_;
};

}  // namespace troupe::base
