#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/core/parameters.h"

namespace troupe::training {

/// What of a policy's parameters the globs over their names (ParameterLayout) match, and what is in sections that are
/// not trained: ascending, not adjacent. INVALID_ARGUMENT: a glob matches none, with the nearest; or nothing is left to
/// train.
absl::StatusOr<std::vector<ParameterRange>> FrozenRanges(const policy::PolicySpec& spec,
                                                         const std::vector<std::string>& globs);

/// Whether the critic's last layer is among `frozen` (FrozenRanges), weight and bias, or all of a critic that is a
/// user's module: what it says is in the units of the moments of returns, which stay then as it does. INVALID_ARGUMENT
/// with `use_popart`, which rescales both, for one of the two without the other.
absl::StatusOr<bool> ValuesAreFrozen(const policy::PolicySpec& spec, absl::Span<const ParameterRange> frozen,
                                     bool use_popart);

}  // namespace troupe::training
