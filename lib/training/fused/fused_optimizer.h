#pragma once

#include <cstdint>

#include "lib/training/core/fused_kernels.h"
#include "lib/training/core/optimizer_options.h"
#include "lib/training/core/parameters.h"

namespace troupe::training::fused {

/// StepBlock, with the kernel's Adam where that is what it is. `part` is whole grains, from a grain on.
void StepPart(const Kernels& kernels, int64_t step, double learning_rate, const OptimizerOptions& options,
              double gradient_norm, const ParameterBlock& part);

}  // namespace troupe::training::fused
