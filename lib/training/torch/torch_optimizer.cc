#include "lib/training/torch/torch_optimizer.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lib/training/core/optimizer.h"

namespace troupe::training {
namespace {

using torch::Tensor;

/// Pieces of the flat tensors that one network's step changes.
struct Pieces {
  std::vector<Tensor> values, gradients, exp_avg, exp_avg_sq;
};

/// LibTorch's fused kernels keep one multiprocessor busy for each 65536 numbers of a tensor, and one for a smaller
/// tensor. A call takes some 30 tensors at a time.
int64_t NumbersOfAdamPiece(int64_t numbers) {
  constexpr int64_t kPieces = 24;
  constexpr int64_t kLeast = 1024;
  const int64_t each = (numbers + kPieces - 1) / kPieces;
  return std::max(kLeast, (each + 63) / 64 * 64);
}

bool IsAdam(const OptimizerOptions& options) {
  return options.optimizer == OptimizerKind::kAdam || options.optimizer == OptimizerKind::kAdamW;
}

/// Numbers [first, end) of a block, in pieces as the optimizer likes them.
void AddPieces(const OptimizerOptions& options, const DeviceBlock& block, int64_t first, int64_t end, Pieces* pieces) {
  const int64_t most = IsAdam(options) ? NumbersOfAdamPiece(block.values.size(0)) : end - first;
  for (int64_t count = 0; first < end; first += count) {
    count = std::min(most, end - first);
    pieces->values.push_back(block.values.narrow(0, first, count));
    pieces->gradients.push_back(block.gradients.narrow(0, first, count));
    pieces->exp_avg.push_back(block.exp_avg.narrow(0, first, count));
    pieces->exp_avg_sq.push_back(block.exp_avg_sq.narrow(0, first, count));
  }
}

/// LibTorch's fused kernels leave everything as it is where `refused` is 1. `learning_rate`: a double or a scalar.
template <typename Rate>
void StepAdam(const OptimizerOptions& options, const Rate& learning_rate, const std::optional<Tensor>& scale,
              const Tensor& step, const Tensor& refused, const Pieces& pieces) {
  const std::vector<Tensor> steps(pieces.values.size(), step);
  const auto apply = [&](const auto& fused) {
    fused(at::TensorList(pieces.values), at::TensorList(pieces.gradients), at::TensorList(pieces.exp_avg),
          at::TensorList(pieces.exp_avg_sq), at::TensorList(), at::TensorList(steps), learning_rate, options.adam_beta1,
          options.adam_beta2, options.weight_decay, options.adam_epsilon, /*amsgrad=*/false,
          /*maximize=*/false, scale, std::optional<Tensor>(refused));
  };
  if (options.optimizer == OptimizerKind::kAdamW) {
    apply([](const auto&... numbers) { at::_fused_adamw_(numbers...); });
  } else {
    apply([](const auto&... numbers) { at::_fused_adam_(numbers...); });
  }
}

/// RMSprop and SGD: of each number the new one where `ok`, else the old one.
template <typename Rate>
void StepMomentum(const OptimizerOptions& options, const Rate& learning_rate, const std::optional<Tensor>& scale,
                  const Tensor& ok, const Pieces& pieces) {
  for (size_t i = 0; i < pieces.values.size(); ++i) {
    const Tensor& value = pieces.values[i];
    Tensor change = scale.has_value() ? pieces.gradients[i] / *scale : pieces.gradients[i];
    if (options.weight_decay > 0) change = change + value * options.weight_decay;
    if (options.optimizer == OptimizerKind::kRmsprop) {
      const Tensor squares =
          pieces.exp_avg_sq[i] * options.rmsprop_alpha + change * change * (1.0 - options.rmsprop_alpha);
      pieces.exp_avg_sq[i].copy_(torch::where(ok, squares, pieces.exp_avg_sq[i]));
      change = change / (squares.sqrt() + options.rmsprop_epsilon);
    }
    if (options.momentum > 0) {
      change = pieces.exp_avg[i] * options.momentum + change;
      pieces.exp_avg[i].copy_(torch::where(ok, change, pieces.exp_avg[i]));
    }
    value.copy_(torch::where(ok, value - change * learning_rate, value));
  }
}

/// `step`, a scalar, is counted already.
template <typename Rate>
void StepPieces(const OptimizerOptions& options, const Rate& learning_rate, const Tensor& norm, const Tensor& step,
                const Tensor& ok, const Pieces& pieces) {
  // The gradient is divided by it: clipped as torch.nn.utils.clip_grad_norm_ does.
  std::optional<Tensor> scale;
  if (options.max_grad_norm > 0) {
    scale = ((norm + 1e-6) / options.max_grad_norm).clamp_min(1.0).to(torch::kFloat32);
  }
  if (!IsAdam(options)) return StepMomentum(options, learning_rate, scale, ok, pieces);
  StepAdam(options, learning_rate, scale, step.to(torch::kFloat32), ok.logical_not().to(torch::kFloat32), pieces);
}

}  // namespace

void ZeroFrozenOnDevice(const StepSettings& settings, const Tensor& gradients) {
  for (const ParameterRange& range : settings.frozen) gradients.narrow(0, range.first, range.end - range.first).zero_();
}

void StepBlockOnDevice(const OptimizerOptions& options, const Tensor& learning_rate, const Tensor& norm,
                       const Tensor& ok, const DeviceBlock& block) {
  block.steps.add_(ok.to(torch::kFloat64));
  Pieces pieces;
  AddPieces(options, block, 0, block.values.size(0), &pieces);
  StepPieces(options, learning_rate.to(torch::kFloat32), norm, block.steps, ok, pieces);
}

void StepOnDevice(const StepSettings& settings, const Tensor& actor_norm, const Tensor& critic_norm, const Tensor& ok,
                  const DeviceNumbers& numbers) {
  numbers.steps.add_(ok.to(torch::kFloat64));
  const auto apply = [&](int64_t first, int64_t end, double learning_rate, const Tensor& norm) {
    const auto of = [&](const Tensor& flat) { return flat.narrow(0, first, end - first); };
    const DeviceBlock block = {of(numbers.values), of(numbers.gradients), of(numbers.exp_avg), of(numbers.exp_avg_sq),
                               numbers.steps};
    Pieces pieces;
    ForTrained(settings.frozen, first, end,
               [&](int64_t from, int64_t to) { AddPieces(settings, block, from - first, to - first, &pieces); });
    if (!pieces.values.empty()) StepPieces(settings, learning_rate, norm, numbers.steps, ok, pieces);
  };
  const bool by_policy = settings.clip_grad_norm_by == ClipGradNormBy::kPolicy;
  const Tensor all = by_policy ? torch::stack({actor_norm, critic_norm}).norm() : Tensor();
  const int64_t split = numbers.acting_size;
  apply(0, split, settings.learning_rate, by_policy ? all : actor_norm);
  apply(split, numbers.values.size(0), settings.critic_learning_rate, by_policy ? all : critic_norm);
}

}  // namespace troupe::training
