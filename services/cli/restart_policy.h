#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "lib/base/backoff.h"
#include "services/cli/child_process.h"

namespace troupe::services {

/// Decides whether and when a worker that ended is started again. Pure: makes no call. Not thread-safe.
class RestartPolicy {
 public:
  struct Options {
    base::Backoff::Options backoff{
        .initial = absl::Milliseconds(50), .max = absl::Seconds(5), .multiplier = 2.0, .budget = absl::Seconds(30)};
    /// One that lived so long was healthy: its delays and budget begin anew.
    absl::Duration healthy_after = absl::Seconds(30);
  };

  RestartPolicy(Options options, uint64_t seed) : options_(options), backoff_(options.backoff, seed) {}

  /// The worker ended after `lived`. How long to wait before its successor starts; nullopt: there is none, because it
  /// left as it should (exit code 0) or because the budget is spent (spent()).
  std::optional<absl::Duration> OnExit(const ChildExit& end, absl::Duration lived) {
    if (end.ok()) return std::nullopt;
    if (lived >= options_.healthy_after) backoff_.Reset();
    const std::optional<absl::Duration> delay = backoff_.NextDelay();
    spent_ = !delay.has_value();
    return delay;
  }
  bool spent() const { return spent_; }

 private:
  const Options options_;
  base::Backoff backoff_;
  bool spent_ = false;
};

}  // namespace troupe::services
