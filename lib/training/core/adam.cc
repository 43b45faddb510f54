#include "lib/training/core/adam.h"

#include <algorithm>
#include <cmath>

namespace troupe::training {
namespace {

constexpr double kClipEpsilon = 1e-6;

}  // namespace

double ClipScale(double gradient_norm, double max_grad_norm) {
  if (max_grad_norm <= 0) return 1.0;
  return std::min(1.0, max_grad_norm / (gradient_norm + kClipEpsilon));
}

AdamStep AdamStep::At(int64_t step, double learning_rate, const StepSettings& settings, double gradient_norm) {
  AdamStep result;
  result.beta1 = static_cast<float>(settings.adam_beta1);
  result.beta2 = static_cast<float>(settings.adam_beta2);
  result.one_minus_beta1 = static_cast<float>(1.0 - settings.adam_beta1);
  result.one_minus_beta2 = static_cast<float>(1.0 - settings.adam_beta2);
  result.epsilon = static_cast<float>(settings.adam_epsilon);
  result.step_size =
      static_cast<float>(learning_rate / (1.0 - std::pow(settings.adam_beta1, static_cast<double>(step))));
  result.inverse_sqrt_correction =
      static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(settings.adam_beta2, static_cast<double>(step))));
  result.gradient_scale = static_cast<float>(ClipScale(gradient_norm, settings.max_grad_norm));
  return result;
}

void ApplyAdam(const AdamStep& step, absl::Span<const float> gradients, absl::Span<float> values,
               absl::Span<float> exp_avg, absl::Span<float> exp_avg_sq) {
  const float* __restrict gradient = gradients.data();
  float* __restrict value = values.data();
  float* __restrict m = exp_avg.data();
  float* __restrict v = exp_avg_sq.data();
  const AdamStep s = step;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const float g = gradient[i] * s.gradient_scale;
    m[i] = s.beta1 * m[i] + s.one_minus_beta1 * g;
    v[i] = s.beta2 * v[i] + s.one_minus_beta2 * g * g;
    value[i] -= s.step_size * m[i] / (std::sqrt(v[i]) * s.inverse_sqrt_correction + s.epsilon);
  }
}

double SumOfSquares(absl::Span<const float> values) {
  double partial[4] = {0, 0, 0, 0};
  size_t i = 0;
  for (; i + 4 <= values.size(); i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) partial[lane] += static_cast<double>(values[i + lane]) * values[i + lane];
  }
  for (; i < values.size(); ++i) partial[0] += static_cast<double>(values[i]) * values[i];
  return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

double GradientNorm(const ParameterBlock& block) { return std::sqrt(SumOfSquares(block.gradients)); }

void StepBlock(int64_t step, double learning_rate, const StepSettings& settings, double gradient_norm,
               const ParameterBlock& block) {
  ApplyAdam(AdamStep::At(step, learning_rate, settings, gradient_norm), block.gradients, block.values, block.exp_avg,
            block.exp_avg_sq);
}

}  // namespace troupe::training
