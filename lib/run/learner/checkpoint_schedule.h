#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/config/resolved_run.h"

namespace troupe::run {

/// When a checkpoint is due during training: whenever a multiple of `checkpoint_interval_env_steps` is passed; and once
/// none was saved for too long, `first_checkpoint_after` for the first one of a process, then
/// `longest_checkpoint_pause`. Whatever is saved counts, so that the time decides in slow runs and the env steps in
/// fast ones. Made by who trains, used by one thread.
class CheckpointSchedule {
 public:
  CheckpointSchedule(const config::ExperimentOptions& options, const base::Clock* clock)
      : interval_(options.checkpoint_interval_env_steps),
        longest_pause_(options.longest_checkpoint_pause),
        clock_(clock),
        due_at_(clock->SteadyNow() + options.first_checkpoint_after) {}

  /// After training that brought the run from `before` env steps to `now`.
  bool IsDue(int64_t before, int64_t now) const {
    return (interval_ > 0 && now / interval_ > before / interval_) || clock_->SteadyNow() >= due_at_;
  }
  /// A checkpoint is being written.
  void NoteSaved() { due_at_ = clock_->SteadyNow() + longest_pause_; }

 private:
  const int64_t interval_;  ///< env steps; 0: they decide nothing
  const absl::Duration longest_pause_;
  const base::Clock* const clock_;
  absl::Duration due_at_;
};

}  // namespace troupe::run
