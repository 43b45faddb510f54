#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/network_backend.h"

namespace troupe::training {

/// NetworkBackend::Forward and Backward with LibTorch, in the host's memory. Errors are theirs.
absl::StatusOr<std::vector<float>> ForwardOf(const policy::PolicySpec& spec, const NetworkCall& call);
absl::Status BackwardOf(const policy::PolicySpec& spec, const NetworkCall& call,
                        absl::Span<const float> output_gradients, absl::Span<float> gradients,
                        absl::Span<float> input_gradients);

}  // namespace troupe::training
