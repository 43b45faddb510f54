#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/training/algorithm_options.h"
#include "lib/training/core/algorithm.h"

namespace troupe::training {

/// The algorithm of that name (AlgorithmSpec::name), which lives for ever. INVALID_ARGUMENT, listing the names, when
/// there is none. The list is registry.inc. Thread-safe.
absl::StatusOr<const Algorithm*> FindAlgorithm(std::string_view name);

}  // namespace troupe::training
