#include "lib/training/fused_backend.h"
namespace troupe::training {
absl::StatusOr<std::unique_ptr<PpoBackend>> MakeFusedBackend(const policy::PolicySpec&, std::shared_ptr<ThreadTeam>) {
  return absl::UnimplementedError("this build has no fused kernels");
}
}  // namespace troupe::training
