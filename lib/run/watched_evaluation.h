#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/config/resolved_run.h"
#include "lib/rollout/evaluator.h"

namespace troupe::run {

/// How far an evaluation is.
struct EvaluationProgress {
  int64_t ended = 0;  ///< episodes
  int64_t episodes = 0;
  absl::Duration since = absl::ZeroDuration();  ///< it began

  /// True if it may be one of a task without an end: after 10 s no episode has ended.
  bool sees_no_end() const { return ended == 0 && since >= absl::Seconds(10); }
  /// "evaluating, 3 of 100 episodes", and what helps where it sees no end.
  std::string Text() const;
};

/// What ends an evaluation before its last episode, and who follows it. Plain value.
struct EvaluationWatch {
  config::EvaluationOptions options;                    ///< its bounds
  std::function<bool()> interrupted;                    ///< asked every 50 ms; may be absent
  std::function<void(const EvaluationProgress&)> tell;  ///< likewise
  /// Set while an evaluation that is to end has not ended within 0.5 s: HostOptions::abandoned of its environments.
  std::atomic<bool>* abandoned = nullptr;
  const base::Clock* clock = &base::Clock::Real();
};

/// Has `play` play the episodes of `request` on a thread of its own, and follows it on the caller's. Returns what
/// `play` returns. But where the watch ended it: CANCELLED after an interrupt, DEADLINE_EXCEEDED after a bound in time,
/// each with the number of episodes that have ended. Blocks until `play` returns, which is soon after: within a step of
/// a native environment, and within 0.5 s where it waits for Python.
absl::StatusOr<rollout::EvaluationResult> PlayWatched(
    const EvaluationWatch& watch, rollout::EvaluationRequest request,
    absl::FunctionRef<absl::StatusOr<rollout::EvaluationResult>(const rollout::EvaluationRequest&)> play);

}  // namespace troupe::run
