#include "lib/training/core/optimizer.h"

#include <cmath>

#include "lib/training/core/adam.h"

namespace troupe::training {
namespace {

constexpr double kClipEpsilon = 1e-6;

/// The numbers of a step of RMSprop or SGD.
struct MomentumStep {
  float learning_rate;
  float gradient_scale;
  float weight_decay;
  float momentum;
  float alpha;
  float one_minus_alpha;
  float epsilon;
};

template <bool kSquares, bool kMomentum>
void ApplyMomentum(const MomentumStep& step, const ParameterBlock& block) {
  const float* __restrict gradient = block.gradients.data();
  float* __restrict value = block.values.data();
  float* __restrict velocity = block.exp_avg.data();
  float* __restrict squares = block.exp_avg_sq.data();
  const MomentumStep s = step;
  for (size_t i = 0; i < block.gradients.size(); ++i) {
    float g = gradient[i] * s.gradient_scale + s.weight_decay * value[i];
    if constexpr (kSquares) {
      squares[i] = s.alpha * squares[i] + s.one_minus_alpha * g * g;
      g = g / (std::sqrt(squares[i]) + s.epsilon);
    }
    if constexpr (kMomentum) g = velocity[i] = s.momentum * velocity[i] + g;
    value[i] -= s.learning_rate * g;
  }
}

void ApplyMomentumOf(const MomentumStep& step, bool squares, const ParameterBlock& block) {
  const bool momentum = step.momentum > 0;
  if (squares) return momentum ? ApplyMomentum<true, true>(step, block) : ApplyMomentum<true, false>(step, block);
  return momentum ? ApplyMomentum<false, true>(step, block) : ApplyMomentum<false, false>(step, block);
}

}  // namespace

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

double ClipScale(double gradient_norm, double max_grad_norm) {
  if (max_grad_norm <= 0) return 1.0;
  return std::min(1.0, max_grad_norm / (gradient_norm + kClipEpsilon));
}

NetworkNorms NetworkNorms::ToClip(const OptimizerOptions& options) const {
  if (options.clip_grad_norm_by == ClipGradNormBy::kNetwork) return *this;
  const double all = std::sqrt(actor * actor + critic * critic);
  return {all, all};
}

void StepBlock(int64_t step, double learning_rate, const OptimizerOptions& options, double gradient_norm,
               const ParameterBlock& block) {
  const auto decay = static_cast<float>(options.weight_decay);
  const bool is_rmsprop = options.optimizer == OptimizerKind::kRmsprop;
  switch (options.optimizer) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdam: {
      const AdamStep adam = AdamStep::At(step, learning_rate, options, gradient_norm);
      if (decay > 0 && options.optimizer == OptimizerKind::kAdam) {
        return ApplyAdamWithDecay(adam, decay, block.gradients, block.values, block.exp_avg, block.exp_avg_sq);
      }
      ShrinkForAdamW(learning_rate, options, block.values);
      return ApplyAdam(adam, block.gradients, block.values, block.exp_avg, block.exp_avg_sq);
    }
    case OptimizerKind::kRmsprop:
    case OptimizerKind::kSgd:
      return ApplyMomentumOf({.learning_rate = static_cast<float>(learning_rate),
                              .gradient_scale = static_cast<float>(ClipScale(gradient_norm, options.max_grad_norm)),
                              .weight_decay = decay,
                              .momentum = static_cast<float>(options.momentum),
                              .alpha = static_cast<float>(options.rmsprop_alpha),
                              .one_minus_alpha = static_cast<float>(1.0 - options.rmsprop_alpha),
                              .epsilon = static_cast<float>(options.rmsprop_epsilon)},
                             is_rmsprop, block);
  }
}

void StepNetworks(const StepSettings& settings, const NetworkNorms& norms, FlatParameters* parameters) {
  const int64_t step = ++parameters->adam_steps;
  const int64_t split = parameters->acting_size();
  const NetworkNorms clipped = norms.ToClip(settings);
  const auto apply = [&](int64_t first, int64_t end, double learning_rate, double norm) {
    ForTrained(settings.frozen, first, end, [&](int64_t from, int64_t to) {
      StepBlock(step, learning_rate, settings, norm, parameters->Part(from, to));
    });
  };
  apply(0, split, settings.learning_rate, clipped.actor);
  apply(split, parameters->size(), settings.critic_learning_rate, clipped.critic);
}

void ZeroFrozen(absl::Span<const ParameterRange> frozen, absl::Span<float> gradients) {
  for (const ParameterRange& range : frozen) {
    std::fill(gradients.begin() + range.first, gradients.begin() + range.end, 0.0f);
  }
}

}  // namespace troupe::training
