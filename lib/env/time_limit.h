#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// `env` whose episodes last at most `max_episode_steps` env steps: one that has not ended by itself is truncated for
/// everybody then, so that values are bootstrapped. EnvSpec::max_episode_steps becomes the smaller of both.
/// INVALID_ARGUMENT below 1.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithTimeLimit(std::unique_ptr<MultiAgentEnv> env,
                                                             int64_t max_episode_steps);

}  // namespace troupe::env
