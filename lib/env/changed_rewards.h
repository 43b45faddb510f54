#pragma once

#include <limits>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// What becomes of the reward that an agent gets in one env step: scaled, then clipped.
struct RewardChange {
  double scale = 1;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

/// `env` with changed rewards. Infos stay as they are. INVALID_ARGUMENT for a scale that is 0 or not finite, and for a
/// range that does not hold 0: environments may leave a reward of 0 out.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithChangedRewards(std::unique_ptr<MultiAgentEnv> env,
                                                                  const RewardChange& change);

}  // namespace troupe::env
