#pragma once

#include <cstddef>
#include <string>

#include "lib/learner/named_values.h"

namespace troupe::run {

/// Policies, and agents, that people are told of by name.
inline constexpr size_t kFewPolicies = 6;

/// "  hunter  -2.34 (-10.00 to 5.00)", a line each: mean, least and largest. Those without a return are left out.
std::string PolicyLines(const learner::ReturnsByName& returns);

}  // namespace troupe::run
