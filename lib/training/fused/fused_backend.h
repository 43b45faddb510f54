#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/core/thread_team.h"

namespace troupe::training {

enum class VectorUnit : uint8_t {
  kBest = 1,    ///< the widest that the processor has
  kAvx2 = 2,    ///< AVX2 with FMA
  kAvx512 = 3,  ///< AVX-512 F, BW, CD, DQ, VL
};

namespace fused {
struct Workspace;
}

/// Multi-layer perceptrons, and cores between them, in hand-written vector code (AVX2 with FMA, or AVX-512): forward,
/// losses of rows, backward and Adam in one pass over the rows. The rows are split over `team` in fixed parts, so that
/// a thread count always gives the same bits; or a thread does all of a policy alone, beside others, without ever
/// waiting for them.
///
/// Makes the back ends of a trainer's policies; those of one shape share the memory they compute in. Used by the update
/// thread.
class FusedBackends {
 public:
  explicit FusedBackends(std::shared_ptr<ThreadTeam> team, VectorUnit vector_unit = VectorUnit::kBest)
      : team_(std::move(team)), vector_unit_(vector_unit) {}

  /// UNIMPLEMENTED, with the reason, when the processor lacks the vector unit or the policy needs what these kernels do
  /// not have: layers wider than 1024, where LibTorch's matrix products win, or sequences of which a panel's
  /// activations take more than 64 MiB.
  absl::StatusOr<std::unique_ptr<NetworkBackend>> Make(const policy::PolicySpec& spec);

 private:
  const std::shared_ptr<ThreadTeam> team_;
  const VectorUnit vector_unit_;
  std::unordered_map<std::string, std::weak_ptr<fused::Workspace>> workspaces_;  // by shape
};

/// One back end, with memory of its own.
absl::StatusOr<std::unique_ptr<NetworkBackend>> MakeFusedBackend(const policy::PolicySpec& spec,
                                                                 std::shared_ptr<ThreadTeam> team,
                                                                 VectorUnit vector_unit = VectorUnit::kBest);

}  // namespace troupe::training
