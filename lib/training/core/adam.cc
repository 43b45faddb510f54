#include "lib/training/core/adam.h"

#include <cmath>

#include "lib/training/core/optimizer.h"

namespace troupe::training {
namespace {

template <bool kDecay>
void Apply(const AdamStep& step, float decay, absl::Span<const float> gradients, absl::Span<float> values,
           absl::Span<float> exp_avg, absl::Span<float> exp_avg_sq) {
  const float* __restrict gradient = gradients.data();
  float* __restrict value = values.data();
  float* __restrict m = exp_avg.data();
  float* __restrict v = exp_avg_sq.data();
  const AdamStep s = step;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const float g = kDecay ? gradient[i] * s.gradient_scale + decay * value[i] : gradient[i] * s.gradient_scale;
    m[i] = s.beta1 * m[i] + s.one_minus_beta1 * g;
    v[i] = s.beta2 * v[i] + s.one_minus_beta2 * g * g;
    value[i] -= s.step_size * m[i] / (std::sqrt(v[i]) * s.inverse_sqrt_correction + s.epsilon);
  }
}

}  // namespace

AdamStep AdamStep::At(int64_t step, double learning_rate, const OptimizerOptions& options, double gradient_norm) {
  AdamStep result;
  result.beta1 = static_cast<float>(options.adam_beta1);
  result.beta2 = static_cast<float>(options.adam_beta2);
  result.one_minus_beta1 = static_cast<float>(1.0 - options.adam_beta1);
  result.one_minus_beta2 = static_cast<float>(1.0 - options.adam_beta2);
  result.epsilon = static_cast<float>(options.adam_epsilon);
  result.step_size =
      static_cast<float>(learning_rate / (1.0 - std::pow(options.adam_beta1, static_cast<double>(step))));
  result.inverse_sqrt_correction =
      static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.adam_beta2, static_cast<double>(step))));
  result.gradient_scale = static_cast<float>(ClipScale(gradient_norm, options.max_grad_norm));
  return result;
}

void ApplyAdam(const AdamStep& step, absl::Span<const float> gradients, absl::Span<float> values,
               absl::Span<float> exp_avg, absl::Span<float> exp_avg_sq) {
  Apply<false>(step, 0, gradients, values, exp_avg, exp_avg_sq);
}

void ApplyAdamWithDecay(const AdamStep& step, float decay, absl::Span<const float> gradients, absl::Span<float> values,
                        absl::Span<float> exp_avg, absl::Span<float> exp_avg_sq) {
  Apply<true>(step, decay, gradients, values, exp_avg, exp_avg_sq);
}

void ShrinkForAdamW(double learning_rate, const OptimizerOptions& options, absl::Span<float> values) {
  if (options.optimizer != OptimizerKind::kAdamW || options.weight_decay == 0) return;
  const auto factor = static_cast<float>(1.0 - learning_rate * options.weight_decay);
  for (float& value : values) value *= factor;
}

}  // namespace troupe::training
