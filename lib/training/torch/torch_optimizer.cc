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

/// In pieces of at most so many numbers.
Pieces TrainedPieces(const StepSettings& settings, const DeviceNumbers& numbers, int64_t first, int64_t end,
                     int64_t max_numbers) {
  Pieces pieces;
  ForTrained(settings.frozen, first, end, [&](int64_t from, int64_t to) {
    for (int64_t count = 0; from < to; from += count) {
      count = std::min(max_numbers, to - from);
      pieces.values.push_back(numbers.values.narrow(0, from, count));
      pieces.gradients.push_back(numbers.gradients.narrow(0, from, count));
      pieces.exp_avg.push_back(numbers.exp_avg.narrow(0, from, count));
      pieces.exp_avg_sq.push_back(numbers.exp_avg_sq.narrow(0, from, count));
    }
  });
  return pieces;
}

/// LibTorch's fused kernels keep one multiprocessor busy for each 65536 numbers of a tensor, and one for a smaller
/// tensor. A call takes some 30 tensors at a time.
int64_t NumbersOfAdamPiece(int64_t numbers) {
  constexpr int64_t kPieces = 24;
  constexpr int64_t kLeast = 1024;
  const int64_t each = (numbers + kPieces - 1) / kPieces;
  return std::max(kLeast, (each + 63) / 64 * 64);
}

/// LibTorch's fused kernels leave everything as it is where `refused` is 1.
void StepAdam(const StepSettings& settings, double learning_rate, const std::optional<Tensor>& scale,
              const Tensor& step, const Tensor& refused, const Pieces& pieces) {
  const std::vector<Tensor> steps(pieces.values.size(), step);
  const auto apply = [&](const auto& fused) {
    fused(at::TensorList(pieces.values), at::TensorList(pieces.gradients), at::TensorList(pieces.exp_avg),
          at::TensorList(pieces.exp_avg_sq), at::TensorList(), at::TensorList(steps), learning_rate,
          settings.adam_beta1, settings.adam_beta2, settings.weight_decay, settings.adam_epsilon, /*amsgrad=*/false,
          /*maximize=*/false, scale, std::optional<Tensor>(refused));
  };
  if (settings.optimizer == OptimizerKind::kAdamW) {
    apply([](const auto&... numbers) { at::_fused_adamw_(numbers...); });
  } else {
    apply([](const auto&... numbers) { at::_fused_adam_(numbers...); });
  }
}

/// RMSprop and SGD: of each number the new one where `ok`, else the old one.
void StepMomentum(const StepSettings& settings, double learning_rate, const std::optional<Tensor>& scale,
                  const Tensor& ok, const Pieces& pieces) {
  for (size_t i = 0; i < pieces.values.size(); ++i) {
    const Tensor& value = pieces.values[i];
    Tensor change = scale.has_value() ? pieces.gradients[i] / *scale : pieces.gradients[i];
    if (settings.weight_decay > 0) change = change + value * settings.weight_decay;
    if (settings.optimizer == OptimizerKind::kRmsprop) {
      const Tensor squares =
          pieces.exp_avg_sq[i] * settings.rmsprop_alpha + change * change * (1.0 - settings.rmsprop_alpha);
      pieces.exp_avg_sq[i].copy_(torch::where(ok, squares, pieces.exp_avg_sq[i]));
      change = change / (squares.sqrt() + settings.rmsprop_epsilon);
    }
    if (settings.momentum > 0) {
      change = pieces.exp_avg[i] * settings.momentum + change;
      pieces.exp_avg[i].copy_(torch::where(ok, change, pieces.exp_avg[i]));
    }
    value.copy_(torch::where(ok, value - change * learning_rate, value));
  }
}

}  // namespace

void ZeroFrozenOnDevice(const StepSettings& settings, const Tensor& gradients) {
  for (const ParameterRange& range : settings.frozen) gradients.narrow(0, range.first, range.end - range.first).zero_();
}

void StepOnDevice(const StepSettings& settings, const Tensor& actor_norm, const Tensor& critic_norm, const Tensor& ok,
                  const DeviceNumbers& numbers) {
  numbers.steps.add_(ok.to(torch::kFloat64));
  const bool is_adam = settings.optimizer == OptimizerKind::kAdam || settings.optimizer == OptimizerKind::kAdamW;
  const Tensor refused = ok.logical_not().to(torch::kFloat32);
  const Tensor step = numbers.steps.to(torch::kFloat32);
  const auto apply = [&](int64_t first, int64_t end, double learning_rate, const Tensor& norm) {
    const Pieces pieces =
        TrainedPieces(settings, numbers, first, end, is_adam ? NumbersOfAdamPiece(end - first) : end - first);
    if (pieces.values.empty()) return;
    // What the gradient is divided by: clipped as torch.nn.utils.clip_grad_norm_ does.
    std::optional<Tensor> scale;
    if (settings.max_grad_norm > 0) scale = ((norm + 1e-6) / settings.max_grad_norm).clamp_min(1.0);
    if (is_adam) return StepAdam(settings, learning_rate, scale, step, refused, pieces);
    StepMomentum(settings, learning_rate, scale, ok, pieces);
  };
  const bool by_policy = settings.clip_grad_norm_by == ClipGradNormBy::kPolicy;
  const Tensor all = by_policy ? torch::stack({actor_norm, critic_norm}).norm() : Tensor();
  const int64_t split = numbers.acting_size;
  apply(0, split, settings.learning_rate, by_policy ? all : actor_norm);
  apply(split, numbers.values.size(0), settings.critic_learning_rate, by_policy ? all : critic_norm);
}

}  // namespace troupe::training
