#include "lib/training/ppo/ppo_row_loss.h"
#include "lib/training/torch/torch_parts.h"

namespace troupe::training {
namespace {

using torch::Tensor;

/// ppo_row_loss.inc for LibTorch.
class PpoLossOnTorch final : public TorchLoss {
 public:
  ActorTerms OfActor(const Tensor& logp, const Columns& columns, const Numbers& numbers) const override {
    const Tensor advantages = columns(RowColumn::kAdvantage);
    const Tensor log_ratio = logp - columns(RowColumn::kOldLogp);
    const Tensor ratio = log_ratio.exp();
    const Tensor clipped = ratio.clamp(numbers[fused::kPpoClipLow], numbers[fused::kPpoClipHigh]);
    ActorTerms terms{.loss = -torch::min(ratio * advantages, clipped * advantages)};
    if (const double coeff = numbers[fused::kPpoKlCoeff]; coeff > 0) terms.penalty = coeff * (ratio - 1.0 - log_ratio);
    const torch::NoGradGuard no_grad;
    terms.statistics = {(ratio - 1.0 - log_ratio).sum(),
                        (ratio - 1.0).abs().gt(numbers[fused::kPpoClipParam]).sum().to(torch::kFloat32)};
    return terms;
  }

  Tensor OfCritic(const Tensor& value, const Columns& columns, const Numbers& numbers,
                  double huber_delta) const override {
    const Tensor target = columns(RowColumn::kValueTarget);
    const Tensor error = TorchValueError(value, target, huber_delta);
    const double clip = numbers[fused::kPpoValueClip];
    if (clip <= 0) return error;
    const Tensor old = columns(RowColumn::kOldValue);
    return torch::max(error, TorchValueError(old + (value - old).clamp(-clip, clip), target, huber_delta));
  }
};

}  // namespace

TorchParts PpoTorch() {
  static const auto& loss = *new PpoLossOnTorch;
  return {.row_loss = &loss};
}

}  // namespace troupe::training
