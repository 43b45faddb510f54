#include "lib/training/fused/fused_optimizer.h"

#include "lib/training/core/adam.h"
#include "lib/training/core/optimizer.h"

namespace troupe::training::fused {
namespace {

/// Adam whose gradient is what was differentiated.
bool IsAdam(const OptimizerOptions& options) {
  if (options.optimizer == OptimizerKind::kAdamW) return true;
  return options.optimizer == OptimizerKind::kAdam && options.weight_decay == 0;
}

}  // namespace

void StepPart(const Kernels& kernels, int64_t step, double learning_rate, const OptimizerOptions& options,
              double gradient_norm, const ParameterBlock& part) {
  if (!IsAdam(options)) return StepBlock(step, learning_rate, options, gradient_norm, part);
  ShrinkForAdamW(learning_rate, options, part.values);
  const AdamStep adam = AdamStep::At(step, learning_rate, options, gradient_norm);
  const AdamNumbers numbers = {adam.beta1,   adam.beta2,     adam.one_minus_beta1,         adam.one_minus_beta2,
                               adam.epsilon, adam.step_size, adam.inverse_sqrt_correction, adam.gradient_scale};
  kernels.adam(numbers, part.gradients.data(), part.values.data(), part.exp_avg.data(), part.exp_avg_sq.data(),
               static_cast<int64_t>(part.values.size()));
}

}  // namespace troupe::training::fused
