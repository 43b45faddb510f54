#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// Keys of Dict observations that are no observations; empty: none.
struct DictKeys {
  std::string state = "state";              ///< the global state, as RLlib's ENV_STATE
  std::string action_mask = "action_mask";  ///< the action mask, as PettingZoo and RLlib give it
};

/// `env` with those keys taken out of its agents' Dict observations, so that no actor sees them: the state becomes the
/// global state (kPerAgent; the environment's own, where it has one, stands), the mask the action mask (where the agent
/// has none of its own). What one agent alone has under the state's key it observes. An element of a mask other than 0
/// allows. What remains stays a Dict, or when it is one space, that space (other uint8 Boxes than images of 0 to 255 as
/// int32). `env` itself when no agent has such a key.
///
/// INVALID_ARGUMENT: nothing remains to be observed; a state for some agents only, or of different spaces; a mask that
/// has not one element for every category of the action space (Space::mask_size), or is for continuous actions alone.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithDictKeys(std::unique_ptr<MultiAgentEnv> env, const DictKeys& keys);

}  // namespace troupe::env
