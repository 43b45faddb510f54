#pragma once

#include "absl/status/statusor.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/fused_backend.h"
#include "lib/training/core/fused_kernels.h"

namespace troupe::training::fused {

/// nullptr when the processor, or the build, has no such unit.
const Kernels* FindKernels(VectorUnit unit);

/// The activation of a policy that `kernels` serve; UNIMPLEMENTED with the reason (FusedBackends::Make).
absl::StatusOr<Activation> CheckServed(const policy::PolicySpec& spec, const Kernels& kernels);

}  // namespace troupe::training::fused
