#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/parameters.h"

namespace troupe::training {

/// What of a policy's parameters the globs over their names (ParameterLayout) match: ascending, not adjacent.
/// INVALID_ARGUMENT: a glob matches none, with the nearest; or nothing is left to train.
absl::StatusOr<std::vector<ParameterRange>> FrozenRanges(const policy::PolicySpec& spec,
                                                         const std::vector<std::string>& globs);

}  // namespace troupe::training
