#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/core/fused_kernels.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/fused/fused_network.h"

namespace troupe::training::fused {

/// nullptr when the processor, or the build, has no such unit.
const Kernels* FindKernels(VectorUnit unit);

/// Whether `kernels` serve the policy; UNIMPLEMENTED with the reason (FusedBackends::Make).
absl::Status CheckServed(const policy::PolicySpec& spec, const Kernels& kernels);

/// Whether NetworkBackend::Backward got as many numbers as the call's network has; none of inputs is right, too.
absl::Status CheckGradients(const NetworkCall& call, const Network& network, size_t outputs, size_t parameters,
                            size_t inputs);

}  // namespace troupe::training::fused
