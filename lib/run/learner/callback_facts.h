#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/learner/named_values.h"
#include "lib/learner/progress.h"
#include "lib/policy/policy_table.h"
#include "lib/rollout/evaluator.h"
#include <nlohmann/json.hpp>

namespace troupe::run {

// What callbacks are told of an event: the attributes of its context in python/troupe/callbacks.py.

/// {env_steps, agent_steps, updates, episodes, wall_clock_s, env_steps_per_s, return_sum, return_mean, episode_length
/// (numbers or null), metrics: {TAG: number}, policies: {ID: {episodes, mean, min, max}}}; of policies as many as
/// NamedValues::kMost, those with most rows.
nlohmann::json UpdateFacts(const learner::ProgressRecord& record, const learner::NamedValues& names);

/// {env_steps, error (text or null), result (as `troupe evaluate --json`, with policies: {ID: {episodes, mean, min,
/// max}}; or null), metrics: {NAME: number} by the names of progress.jsonl}. `table`: the policies that played.
nlohmann::json EvaluationFacts(const absl::StatusOr<rollout::EvaluationResult>& result,
                               const policy::PolicyTable* table, const learner::NamedValues& names, int64_t env_steps);

/// {env_steps, is_best, error (text or null)}.
nlohmann::json CheckpointFacts(const absl::Status& saved, int64_t env_steps, bool is_best);

/// {env_steps, resumed}, and {env_steps, reason}.
nlohmann::json RunStartFacts(int64_t env_steps, bool resumed);
nlohmann::json RunEndFacts(int64_t env_steps, const std::string& reason);

}  // namespace troupe::run
