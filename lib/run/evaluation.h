#pragma once

#include <string>
#include <vector>

#include "lib/learner/episode_stats.h"
#include "lib/policy/ids.h"
#include "lib/rollout/evaluator.h"

namespace troupe::run {

/// Episodes that are told one by one; of a larger evaluation its first so many.
inline constexpr size_t kMostEpisodesTold = 10'000;

/// What an episode is told by, besides its place.
struct EpisodeNames {
  std::vector<std::string> agents;  ///< by agent slot
  policy::BySlot<std::string> policies;
};

/// `result` as EvaluationJson has it, with "seed" (of the evaluation) and "per_episode", a list of kMostEpisodesTold at
/// most: {"episode", "seed" (what reset got), "length", "cut", "return_sum", "return_mean", "agents": {ID: {"return",
/// "policy"}}, "infos": {COLUMN: mean over agents and steps}}, with those agents that appeared and columns that were
/// set.
std::string EvaluationWithEpisodesJson(const rollout::EvaluationResult& result, uint64_t seed,
                                       const EpisodeNames& names);

/// The JSON of an evaluation in summary.json: {"episodes", "episodes_cut", "return_sum": {"mean", "std"},
/// "return_mean": {...}, "agents": {ID: {"mean", "std"}}, "infos": {COLUMN: {"mean", "std"}}, "episode_length":
/// {"mean"}} on one line; a value that does not exist is null.
std::string EvaluationJson(const rollout::EvaluationResult& result);

/// What people should know of episodes that were cut, one line; empty: none was. `max_episode_steps`: after so many.
std::string CutText(const rollout::EvaluationResult& result, int64_t max_episode_steps);

/// By agent and by policy; `num_policies`: policy slots that there are.
learner::EpisodeStats StatsOf(const rollout::EvaluationResult& result, size_t num_policies);

}  // namespace troupe::run
