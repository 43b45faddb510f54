#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/learner/named_values.h"
#include "lib/learner/progress.h"
#include "lib/policy/policy_table.h"
#include "lib/rollout/evaluator.h"
#include "lib/run/policy_lines.h"

namespace troupe::run {

/// Said once where agents' rewards differ and nothing says by which return a state is the best.
inline constexpr std::string_view kNoBest =
    "agents' rewards differ, so their sum says little: each policy has its return, and there is no checkpoint \"best\" "
    "(experiment.best_by says by which return)";

/// Returns by name, as far as they are told: NamedValues::kMost for programs, a few for people.
struct ToldReturns {
  static constexpr size_t kFew = kFewPolicies;

  learner::EpisodeStats stats;
  learner::ReturnsByName policies;
  learner::ReturnsByName agents;
  learner::ReturnsByName few_policies;
};
ToldReturns Told(const learner::NamedValues& names, learner::EpisodeStats stats, const policy::PolicyTable& table);

/// What a run came to: summary.json and the last lines on stdout.
struct RunSummary {
  std::string run_name;
  std::string directory;
  std::string reason;                ///< why it ended
  learner::ProgressRecord progress;  ///< of the last update; counters of the end, wall_clock_s until training ended
  ToldReturns returns;               ///< of the last 100 episodes in training
  std::optional<rollout::EvaluationResult> evaluation;  ///< of the last weights
  ToldReturns evaluation_returns;                       ///< of that
  bool deterministic = false;                           ///< whether that took the likeliest actions, not sampled ones
  /// The same episodes with the other kind of actions; nullopt: not played.
  std::optional<rollout::EvaluationResult> other_actions;
  /// Of that, by the names that progress.jsonl has.
  std::vector<std::pair<std::string, double>> evaluation_values;
  std::string evaluation_cut;         ///< CutText of it
  std::string evaluation_error;       ///< why there is none although one was due
  std::vector<std::string> degraded;  ///< what could not be written at the end (Degradations)
};

/// One JSON object on one line: run, directory, reason, env_steps, agent_steps, updates, episodes, wall_clock_s,
/// env_steps_per_s (of those env steps in that time), return_sum, return_mean, rewards_differ, best_by (text or null),
/// best_return (number or null), policies and agents {ID: {return_mean, return_min, return_max}}, policies_rest and
/// agents_rest {count, return_min, …} where there are more than NamedValues::kMost, env_errors and the other counts of
/// environments, rows {…}, evaluation (as `troupe evaluate --json`, with policies {ID: {mean, min, max}}, at most as
/// many agents and policies; or null), the same by the names of progress.jsonl (evaluation_return_sum and so on),
/// evaluation_deterministic {return_sum, return_mean} or, where the evaluation was that, evaluation_sampled (or null),
/// evaluation_error (text or null), degraded.
std::string SummaryJson(const RunSummary& summary);
/// The same for people.
std::string SummaryText(const RunSummary& summary);

}  // namespace troupe::run
