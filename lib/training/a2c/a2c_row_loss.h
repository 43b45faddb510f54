#pragma once

// Also included by the files that are compiled for one processor: see core/fused_kernels.h.
#include "lib/training/core/fused_kernels.h"

namespace troupe::training::fused {

/// The columns of A2C's loss.
enum A2cActorColumn : int { kA2cAdvantage = 0 };
enum A2cCriticColumn : int { kA2cTarget = 0 };

const LossKernels* A2cAvx2Kernels();
const LossKernels* A2cAvx512Kernels();

}  // namespace troupe::training::fused
