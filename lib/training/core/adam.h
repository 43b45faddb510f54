#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/core/parameters.h"

namespace troupe::training {

/// The numbers of one Adam step (Kingma & Ba 2015, algorithm 1, arranged as torch.optim.Adam):
///   p -= step_size * m / (sqrt(v) * inverse_sqrt_correction + epsilon)
struct AdamStep {
  float beta1 = 0;
  float beta2 = 0;
  float one_minus_beta1 = 0;  ///< rounded once: 1.0f - 0.999f is off by 1e-5
  float one_minus_beta2 = 0;
  float epsilon = 0;
  float step_size = 0;                ///< learning rate / (1 - beta1^step)
  float inverse_sqrt_correction = 0;  ///< 1 / sqrt(1 - beta2^step)
  float gradient_scale = 1;           ///< from clipping the gradient's norm

  /// `step` counts from 1. `gradient_norm` is clipped to settings.max_grad_norm as torch.nn.utils.clip_grad_norm_ does.
  static AdamStep At(int64_t step, double learning_rate, const StepSettings& settings, double gradient_norm);
};

/// The step over a range of the flat buffers.
void ApplyAdam(const AdamStep& step, absl::Span<const float> gradients, absl::Span<float> values,
               absl::Span<float> exp_avg, absl::Span<float> exp_avg_sq);

/// The norm of a block's gradient.
double GradientNorm(const ParameterBlock& block);

/// The step of one block: its gradient, of norm `gradient_norm` (finite), clipped and applied. `step` counts from 1.
void StepBlock(int64_t step, double learning_rate, const StepSettings& settings, double gradient_norm,
               const ParameterBlock& block);

/// What the gradient of one network is multiplied by.
double ClipScale(double gradient_norm, double max_grad_norm);

/// Sum of squares in double precision, in an order that depends on the length only.
double SumOfSquares(absl::Span<const float> values);

}  // namespace troupe::training
