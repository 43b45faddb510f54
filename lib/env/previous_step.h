#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// What agents observe of their own last decision. Plain value.
struct PreviousStep {
  bool action = false;
  bool reward = false;
};

/// `env` whose agents observe, behind what they did, their last action of the episode, as the environment got it, and
/// the sum of what it brought (as rewards before this wrapper add up until the next observation); zeros at an agent's
/// first observation. A discrete number is one-hot with its categories, as in action masks; a continuous one is itself.
/// A float Box of one dimension becomes a longer one; any other space the first of a Tuple with a Box for each,
/// in which an image of bytes is floats. INVALID_ARGUMENT for spaces too large.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithPreviousStep(std::unique_ptr<MultiAgentEnv> env,
                                                                const PreviousStep& what);

}  // namespace troupe::env
