#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "lib/base/philox.h"

namespace troupe::base {

/// Delays between tries: exponential with full jitter up to a cap, within a budget. The one place where Troupe decides
/// how often to try again. Not thread-safe; makes no call and never sleeps.
class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(50);
    absl::Duration max = absl::Seconds(2);
    double multiplier = 2.0;
    /// Sum of all delays after which there is no further try; infinite: for ever.
    absl::Duration budget = absl::InfiniteDuration();
  };

  Backoff(Options options, uint64_t seed);

  /// How long to wait before the next try, or nullopt when the budget is spent.
  std::optional<absl::Duration> NextDelay();
  /// After a success: the next failure starts small again, with a full budget.
  void Reset();
  int tries() const { return tries_; }

 private:
  const Options options_;
  PhiloxSequence random_;
  absl::Duration bound_;
  absl::Duration spent_ = absl::ZeroDuration();
  int tries_ = 0;
};

}  // namespace troupe::base
