#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/env/vector_env.h"

namespace troupe::env {

struct RandomRolloutResult {
  int64_t env_steps = 0;
  int64_t agent_steps = 0;
  int64_t episodes = 0;       ///< that ended
  double return_sum = 0;      ///< mean over those episodes of the sum over agents
  double return_mean = 0;     ///< and of the mean over agents
  double episode_length = 0;  ///< mean, env steps
  absl::Duration elapsed;
  double env_steps_per_s = 0;
  double agent_steps_per_s = 0;
};

/// Plays uniform random actions until at least `env_steps` environment steps were made: what `troupe envs bench` shows.
/// The time is that of stepping, drawing the actions and writing all rows, on the calling thread. Errors are those of
/// the environments.
absl::StatusOr<RandomRolloutResult> RandomRollout(VectorEnv& envs, int64_t env_steps,
                                                  const base::Clock& clock = base::Clock::Real());

}  // namespace troupe::env
