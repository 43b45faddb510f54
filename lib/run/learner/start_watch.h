#pragma once

#include <functional>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/storage/run_folder.h"

namespace troupe::run {

/// Ends a learner's process that is asked to end while it starts. A start may run code of users for as long as that
/// likes: the trial of a TorchScript module, an environment that is made. Nothing is trained yet that could be saved.
/// Made by the learner's process, which steps it on a thread of its own until the start is over. Thread-safe.
class StartWatch {
 public:
  /// For a start to notice the signal by itself.
  static constexpr absl::Duration kGrace = absl::Seconds(1);
  /// Between two steps.
  static constexpr absl::Duration kLook = absl::Milliseconds(50);

  /// `interrupted`: whether a signal has come. `end` ends the process and does not return, except in tests.
  StartWatch(std::function<bool()> interrupted, std::function<void()> end,
             const base::Clock* clock = &base::Clock::Real())
      : interrupted_(std::move(interrupted)), end_(std::move(end)), clock_(clock) {}

  /// The start has taken this folder, which outlives the watch: that of a new run goes with the process.
  void SetFolder(storage::RunFolder* folder);
  /// The start runs what `stop` ends, which is called at each step after the signal; nullptr: it runs it no more.
  void SetStop(std::function<void()> stop);
  /// Ends the process once the signal came kGrace ago; until the next step.
  absl::Duration Step();

 private:
  const std::function<bool()> interrupted_;
  const std::function<void()> end_;
  const base::Clock* const clock_;
  std::optional<absl::Duration> interrupted_at_;  ///< of the thread that steps
  base::Mutex mutex_;
  storage::RunFolder* folder_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::function<void()> stop_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::run
