#pragma once

#include <string>
#include <vector>

#include "lib/policy/policy_fwd.h"

namespace troupe::policy {

/// How the networks of these policies read observations and what becomes of their actions, in one line for people:
/// "observations bytes to [0, 1] by their bounds; actions from [-1, 1] to their Box". Policies that differ are named,
/// of each kind the first.
std::string ScalingText(const std::vector<PolicySpec>& specs);

}  // namespace troupe::policy
