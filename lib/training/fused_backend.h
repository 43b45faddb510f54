#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/ppo_backend.h"
#include "lib/training/thread_team.h"

namespace troupe::training {

enum class VectorUnit : uint8_t {
  kBest = 1,    ///< the widest that the processor has
  kAvx2 = 2,    ///< AVX2 with FMA
  kAvx512 = 3,  ///< AVX-512 F, BW, CD, DQ, VL
};

/// PPO for multi-layer perceptrons in hand-written vector code (AVX2 with FMA, or AVX-512): forward, losses, backward
/// and Adam in one pass over the rows, which are split over `team` in fixed parts, so that a thread count always gives
/// the same bits.
///
/// UNIMPLEMENTED, with the reason, when the processor lacks the vector unit or the policy needs what these kernels do
/// not have: an activation whose derivative does not follow from its value (gelu, silu), or layers wider than 1024,
/// where LibTorch's matrix products win.
absl::StatusOr<std::unique_ptr<PpoBackend>> MakeFusedBackend(const policy::PolicySpec& spec,
                                                             std::shared_ptr<ThreadTeam> team,
                                                             VectorUnit vector_unit = VectorUnit::kBest);

}  // namespace troupe::training
