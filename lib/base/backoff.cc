#include "lib/base/backoff.h"

#include <algorithm>

namespace troupe::base {

Backoff::Backoff(Options options, uint64_t seed)
    : options_(options),
      random_(PhiloxKey{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, {}),
      bound_(options.initial) {}

std::optional<absl::Duration> Backoff::NextDelay() {
  if (spent_ >= options_.budget) return std::nullopt;
  // Half fixed, half random: never a busy loop, never a stampede of restarted workers.
  absl::Duration delay = bound_ * (0.5 + 0.5 * random_.Uniform());
  delay = std::min(delay, options_.budget - spent_);
  bound_ = std::min(bound_ * options_.multiplier, options_.max);
  spent_ += delay;
  ++tries_;
  return delay;
}

void Backoff::Reset() {
  bound_ = options_.initial;
  spent_ = absl::ZeroDuration();
  tries_ = 0;
}

}  // namespace troupe::base
