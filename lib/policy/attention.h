#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lib/policy/network_spec.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::policy {

inline constexpr int64_t kMaxAttentionSize = 1024;
inline constexpr int64_t kMaxAttentionHeads = 64;
/// Each agent attends to each: a row of the critic's input costs about 3 * heads * agents^2 numbers.
inline constexpr int64_t kMaxAttentionAgents = 256;

/// The part of PolicySpec::Validate that is of attention: INVALID_ARGUMENT with role and what does not fit, of a
/// network that attends without being a critic of the joint observation, a size outside 1..kMaxAttentionSize, heads
/// outside 1..kMaxAttentionHeads or no divisor of the size, agents outside 1..kMaxAttentionAgents or out of order, and
/// observations that do not add up to the joint one. What is no attention has none of its numbers.
absl::Status ValidateAttention(const PolicyId& id, const NetworkSpec& network, int64_t joint_observation_size);

/// "64 in 4 heads over observations of [18, 21] by agents [0, 0, 1]"; "none" of what does not attend.
std::string AttentionText(const NetworkSpec& network);

}  // namespace troupe::policy
