#include "lib/training/torch/torch_parts.h"

namespace troupe::training {
namespace {

using torch::Tensor;

/// a2c_row_loss.inc for LibTorch.
class A2cLossOnTorch final : public TorchLoss {
 public:
  ActorTerms OfActor(const Tensor& logp, const Columns& columns, const Numbers& /*numbers*/) const override {
    return {.loss = -(columns(RowColumn::kAdvantage) * logp)};
  }

  Tensor OfCritic(const Tensor& value, const Columns& columns, const Numbers& /*numbers*/,
                  double huber_delta) const override {
    return TorchValueError(value, columns(RowColumn::kValueTarget), huber_delta);
  }
};

}  // namespace

TorchParts A2cTorch() {
  static const auto& loss = *new A2cLossOnTorch;
  return {.row_loss = &loss};
}

}  // namespace troupe::training
