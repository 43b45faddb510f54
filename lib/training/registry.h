#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/training/algorithm_options.h"
#include "lib/training/core/algorithm.h"

namespace troupe::training {

/// The algorithm of that name (AlgorithmSpec::name), which lives for ever. INVALID_ARGUMENT, listing the names, when
/// there is none. The list is registry.inc. Thread-safe.
absl::StatusOr<const Algorithm*> FindAlgorithm(std::string_view name);

/// The state that a policy starts with when it is trained so: weights drawn from `seed`, an optimizer that has taken no
/// step, moments of nothing. A spec without a name: of a policy that is not trained, or that nobody knows yet how it is
/// (Trainer::AddPolicy and ImportState add what is missing). INVALID_ARGUMENT as CheckAlgorithm.
absl::StatusOr<policy::PolicyState> InitialState(const policy::PolicySpec& policy,
                                                 const policy::AlgorithmSpec& algorithm, uint64_t seed);

}  // namespace troupe::training
