#pragma once

#include "absl/status/statusor.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/fused/fused_workspace.h"

namespace troupe::training::fused {

/// The network that a call of NetworkBackend::Forward or Backward names. Errors as there.
absl::StatusOr<NetworkInUse> FindNetworkInUse(const Workspace& space, const NetworkCall& call);

}  // namespace troupe::training::fused
