#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "lib/training/core/optimizer_options.h"

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

  /// `step` counts from 1. `gradient_norm` is clipped to options.max_grad_norm as torch.nn.utils.clip_grad_norm_ does.
  static AdamStep At(int64_t step, double learning_rate, const OptimizerOptions& options, double gradient_norm);
};

/// The step over a range of the flat buffers.
void ApplyAdam(const AdamStep& step, absl::Span<const float> gradients, absl::Span<float> values,
               absl::Span<float> exp_avg, absl::Span<float> exp_avg_sq);
/// The same with Adam's weight decay, `decay` times the parameter in the gradient.
void ApplyAdamWithDecay(const AdamStep& step, float decay, absl::Span<const float> gradients, absl::Span<float> values,
                        absl::Span<float> exp_avg, absl::Span<float> exp_avg_sq);

/// The weight decay of AdamW, which comes before Adam's step; of another optimizer nothing.
void ShrinkForAdamW(double learning_rate, const OptimizerOptions& options, absl::Span<float> values);

}  // namespace troupe::training
