#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/core/optimizer_options.h"
#include "lib/training/core/parameters.h"

namespace troupe::training {

/// Sum of squares in double precision, in an order that depends on the length only.
double SumOfSquares(absl::Span<const float> values);

/// The norm of a block's gradient.
double GradientNorm(const ParameterBlock& block);

/// What a gradient is multiplied by, as torch.nn.utils.clip_grad_norm_ does.
double ClipScale(double gradient_norm, double max_grad_norm);

/// The norms by which the two networks' gradients are clipped: each its own, or for both that of all.
struct NetworkNorms {
  double actor = 0;
  double critic = 0;

  NetworkNorms ToClip(const OptimizerOptions& options) const;
};

/// The step of one block: its gradient, clipped by `gradient_norm` (finite) and applied. `step` counts from 1. The
/// optimizers are torch.optim's of one parameter group: Adam and AdamW keep both moments, RMSprop its average of
/// squares in exp_avg_sq, RMSprop and SGD their momentum in exp_avg, where there is some.
void StepBlock(int64_t step, double learning_rate, const OptimizerOptions& options, double gradient_norm,
               const ParameterBlock& block);

/// The step of both networks, without what settings.frozen holds; counts it.
void StepNetworks(const StepSettings& settings, const NetworkNorms& norms, FlatParameters* parameters);

/// Calls `part(first, end)` for the pieces of [first, end) that are not frozen. `frozen` ascends.
template <typename Part>
void ForTrained(absl::Span<const ParameterRange> frozen, int64_t first, int64_t end, Part&& part) {
  for (const ParameterRange& range : frozen) {
    if (range.end <= first) continue;
    if (range.first >= end) break;
    if (range.first > first) part(first, range.first);
    first = std::min(end, range.end);
  }
  if (first < end) part(first, end);
}

/// Frozen parameters have the gradient zero.
void ZeroFrozen(absl::Span<const ParameterRange> frozen, absl::Span<float> gradients);

}  // namespace troupe::training
