#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/base/ids.h"
#include "lib/space/space.h"

namespace troupe::env {

using base::AgentId;
using base::AgentSlot;

struct AgentSpec {
  AgentId id;
  space::Space observation_space;
  space::Space action_space;
  bool has_action_mask = false;  ///< the environment writes a mask with every observation of this agent
};

/// How the environment gives a global state (the critic's input, never the actor's).
enum class StateKind : uint8_t {
  kNone = 0,      ///< it has none
  kPerEnv = 1,    ///< one an environment step
  kPerAgent = 2,  ///< one for every ready agent
};

/// What an environment promises; fixed for its life. Immutable once made; thread-compatible.
struct EnvSpec {
  std::string name;  ///< registry name, "mpe/simple_spread"
  std::vector<AgentSpec> possible_agents;
  StateKind state_kind = StateKind::kNone;
  space::Space state_space;               ///< of kPerEnv and kPerAgent
  bool has_agent_mask = false;            ///< the environment may exclude rows from losses
  std::vector<std::string> info_columns;  ///< named numeric infos, one value an agent and step, reported as metrics
  int64_t max_episode_steps = 0;          ///< 0: no limit known

  int32_t num_agents() const { return static_cast<int32_t>(possible_agents.size()); }
  /// INVALID_ARGUMENT when empty, too many agents (1024), doubled or empty agent ids, or a missing space.
  absl::Status Validate() const;
  /// NOT_FOUND for an unknown agent.
  absl::StatusOr<AgentSlot> FindAgent(const AgentId& id) const;
  /// Canonical text of everything above; equal specs give equal text (part of the spec hash).
  std::string ToString() const;
};

}  // namespace troupe::env
