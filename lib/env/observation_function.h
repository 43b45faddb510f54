#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/slot_buffers.h"

namespace troupe::env {

/// What agents observe instead of what the environment gives them, made from what all of them observe: what
/// `multi_agent.observation_fn` names. Pure; does not block or allocate in `observe`. To register one, add it to the
/// table in observation_function.cc.
struct ObservationFunction {
  std::string_view name;
  /// The new observation spaces, one for each agent slot, with float rows. INVALID_ARGUMENT: the environment cannot be
  /// served.
  absl::StatusOr<std::vector<space::Space>> (*spaces)(const EnvSpec& spec);
  /// Writes the new row of agent `slot`, which is observed now. `all` (one environment, index 0) holds what the
  /// environment gave in this call; agents that are not observed have no row of this call.
  void (*observe)(const SlotBuffers& all, AgentSlot slot, float* row);
};

/// A registered function; NOT_FOUND gives the nearest name, or all:
///   joint_observation  every agent sees what all agents see now: their rows in the order of possible_agents, of those
///                      who observe nothing now zeros, then for each agent 1 if it does, else 0
absl::StatusOr<const ObservationFunction*> FindObservationFunction(std::string_view name);

/// `env` with the function between it and the policies: the same but for observation spaces and observations. `env` is
/// checked as CheckedEnv does before the function sees anything. `function` must outlive it. INVALID_ARGUMENT also when
/// the function declares a space for another number of agents, or one without float rows (a uint8 Box).
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithObservationFunction(std::unique_ptr<MultiAgentEnv> env,
                                                                       const ObservationFunction& function);
/// The same by name; `env` as it is for an empty one.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithObservationFunction(std::unique_ptr<MultiAgentEnv> env,
                                                                       std::string_view name);

}  // namespace troupe::env
