#pragma once

// Also included by the files that are compiled for one processor: see core/fused_kernels.h.
#include "lib/training/core/fused_kernels.h"

namespace troupe::training::fused {

/// RowLossCall::numbers of PPO.
enum PpoNumber : int {
  kPpoClipParam = 0,
  kPpoClipLow = 1,    ///< 1 - clip_param
  kPpoClipHigh = 2,   ///< 1 + clip_param
  kPpoValueClip = 3,  ///< 0: off
  kPpoKlCoeff = 4,    ///< of the loss with a penalty
};
/// Its statistics: sums over rows.
enum PpoStatistic : int {
  kPpoKl = 0,       ///< ratio - 1 - log ratio ("k3", Schulman 2020)
  kPpoClipped = 1,  ///< rows with |ratio - 1| > clip_param
};
/// Its columns.
enum PpoActorColumn : int { kPpoOldLogp = 0, kPpoAdvantage = 1 };
enum PpoCriticColumn : int { kPpoTarget = 0, kPpoOldValue = 1 };

const LossKernels* PpoAvx2Kernels();
const LossKernels* PpoAvx512Kernels();
/// With a penalty on the KL divergence.
const LossKernels* PpoKlAvx2Kernels();
const LossKernels* PpoKlAvx512Kernels();

}  // namespace troupe::training::fused
