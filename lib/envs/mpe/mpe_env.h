#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/multi_agent_env.h"
#include "lib/envs/mpe/world.h"

namespace troupe::envs {

/// An environment of the particle-world family: a MultiAgentEnv that can also start from a given world.
class MpeEnv : public env::MultiAgentEnv {
 public:
  /// Like Reset, from these positions and velocities. INVALID_ARGUMENT when the numbers of agents or landmarks differ.
  virtual absl::Status ResetTo(const WorldState& state, env::StepWriter& out) = 0;
};

/// The environment with mpe2's name ("simple_spread_v3") or ours ("mpe/simple_spread"). NOT_FOUND for one that is not
/// built in, INVALID_ARGUMENT for bad arguments.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeMpeEnv(std::string_view name, env::EnvArgs args);

}  // namespace troupe::envs
