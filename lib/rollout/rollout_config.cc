#include "lib/rollout/rollout_config.h"

#include "lib/policy/policy_spec.h"

namespace troupe::rollout {

RolloutConfig::RolloutConfig() = default;
RolloutConfig::RolloutConfig(const RolloutConfig& other) = default;
RolloutConfig::RolloutConfig(RolloutConfig&& other) noexcept = default;
RolloutConfig& RolloutConfig::operator=(const RolloutConfig& other) = default;
RolloutConfig& RolloutConfig::operator=(RolloutConfig&& other) noexcept = default;
RolloutConfig::~RolloutConfig() = default;

}  // namespace troupe::rollout
