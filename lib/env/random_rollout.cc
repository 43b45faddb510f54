#include "lib/env/random_rollout.h"

#include <numeric>
#include <vector>

#include "lib/base/status_macros.h"

namespace troupe::env {

absl::StatusOr<RandomRolloutResult> RandomRollout(VectorEnv& envs, int64_t env_steps, const base::Clock& clock) {
  RandomRolloutResult result;
  std::vector<space::ActionWord> actions(envs.action_size());
  const int64_t env_steps_before = envs.env_steps();
  const int64_t agent_steps_before = envs.agent_steps();
  const absl::Duration begin = clock.SteadyNow();
  TROUPE_RETURN_IF_ERROR(envs.Reset());
  while (envs.env_steps() - env_steps_before < env_steps) {
    envs.SampleActions(absl::MakeSpan(actions));
    TROUPE_RETURN_IF_ERROR(envs.Step(actions));
    for (const VectorEnv::EpisodeEnd& end : envs.finished()) {
      ++result.episodes;
      result.return_sum += std::accumulate(end.returns.begin(), end.returns.end(), 0.0);
      result.episode_length += static_cast<double>(end.length);
    }
  }
  result.elapsed = clock.SteadyNow() - begin;
  result.env_steps = envs.env_steps() - env_steps_before;
  result.agent_steps = envs.agent_steps() - agent_steps_before;
  if (result.episodes > 0) {
    result.return_sum /= static_cast<double>(result.episodes);
    result.return_mean = result.return_sum / static_cast<double>(envs.spec().num_agents());
    result.episode_length /= static_cast<double>(result.episodes);
  }
  const double seconds = absl::ToDoubleSeconds(result.elapsed);
  if (seconds > 0) {
    result.env_steps_per_s = static_cast<double>(result.env_steps) / seconds;
    result.agent_steps_per_s = static_cast<double>(result.agent_steps) / seconds;
  }
  return result;
}

}  // namespace troupe::env
