#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/learner/progress.h"
#include "lib/rollout/evaluator.h"

namespace troupe::services {

/// What a run came to: summary.json and the last lines on stdout.
struct RunSummary {
  std::string run_name;
  std::string directory;
  std::string reason;                  ///< why it ended
  learner::ProgressRecord progress;    ///< of the last update; counters of the end
  double process_env_steps_per_s = 0;  ///< of this process, from its first update's begin to its last's end
  std::optional<rollout::EvaluationResult> evaluation;  ///< of the last weights
  std::string evaluation_error;                         ///< why there is none although one was due
  std::vector<std::string> degraded;                    ///< what could not be written at the end (Degradations)
};

/// One JSON object on one line: run, directory, reason, env_steps, agent_steps, updates, episodes, wall_clock_s,
/// env_steps_per_s, return_sum, return_mean, env_errors and the other counts of environments, rows {…}, evaluation (as
/// `troupe evaluate --json`, or null), evaluation_error (text or null), degraded.
std::string SummaryJson(const RunSummary& summary);
/// The same for people.
std::string SummaryText(const RunSummary& summary);

}  // namespace troupe::services
