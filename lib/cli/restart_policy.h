#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "lib/base/backoff.h"
#include "lib/base/exit_code.h"
#include "lib/cli/child_process.h"

namespace troupe::cli {

/// Decides whether and when a worker that ended is started again. A life is fruitful when the learner accepted a
/// fragment of it, else barren. Pure: makes no call. Not thread-safe.
class RestartPolicy {
 public:
  struct Options {
    /// Before a successor starts; begins anew after a fruitful life.
    base::Backoff::Options backoff{.initial = absl::Milliseconds(50), .max = absl::Seconds(2), .multiplier = 2.0};
    /// So many barren lives in a row are the last.
    int max_barren_lives = 15;
  };

  RestartPolicy(Options options, uint64_t seed) : options_(options), backoff_(options.backoff, seed) {}

  /// How long to wait before the successor of a worker that ended so starts; nullopt: there is none, because it left as
  /// it should, or because another would end like it (gave_up()).
  std::optional<absl::Duration> OnExit(const ChildExit& end, bool fruitful) {
    if (end.in_order()) return std::nullopt;
    if (fruitful) {
      barren_lives_ = 0;
      backoff_.Reset();
    } else {
      ++barren_lives_;
    }
    refused_ = end.Is(base::ExitCode::kRefused);
    if (gave_up()) return std::nullopt;
    return backoff_.NextDelay();
  }

  bool gave_up() const { return refused_ || barren_lives_ >= options_.max_barren_lives; }
  /// The last one said that a restart cannot mend it.
  bool refused() const { return refused_; }
  int barren_lives() const { return barren_lives_; }

 private:
  const Options options_;
  base::Backoff backoff_;
  int barren_lives_ = 0;  ///< in a row
  bool refused_ = false;
};

}  // namespace troupe::cli
