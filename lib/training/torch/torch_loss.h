#pragma once

#include <array>
#include <functional>
#include <vector>

#include "lib/training/core/row_loss.h"
#include <torch/torch.h>

namespace troupe::training {

/// A RowLoss written for LibTorch's autograd. One for each algorithm that has a RowLoss, in its folder; lives for ever,
/// thread-safe.
class TorchLoss {
 public:
  /// The rows of a minibatch: [n] of a column.
  using Columns = std::function<torch::Tensor(RowColumn column)>;
  using Numbers = std::array<double, kLossNumbers>;  ///< RowLossCall::numbers

  struct ActorTerms {
    torch::Tensor loss;                          ///< [n], -objective
    torch::Tensor penalty = {};                  ///< [n], added to what is differentiated alone; may be undefined
    std::vector<torch::Tensor> statistics = {};  ///< sums over rows, scalars without a graph; at most kLossStatistics
  };

  virtual ~TorchLoss() = default;
  /// `logp` [n].
  virtual ActorTerms OfActor(const torch::Tensor& logp, const Columns& columns, const Numbers& numbers) const = 0;
  /// `value` [n] -> the error of each row, [n].
  virtual torch::Tensor OfCritic(const torch::Tensor& value, const Columns& columns, const Numbers& numbers,
                                 double huber_delta) const = 0;
};

/// The mean; 0 where there are no rows.
inline torch::Tensor MeanOf(const torch::Tensor& of_rows) {
  return of_rows.numel() == 0 ? of_rows.sum() : of_rows.mean();
}

/// Half the squared error, or Huber's form of it (Huber 1964), of each row.
inline torch::Tensor TorchValueError(const torch::Tensor& prediction, const torch::Tensor& target, double huber_delta) {
  if (huber_delta > 0) return torch::huber_loss(prediction, target, torch::Reduction::None, huber_delta);
  return 0.5 * (prediction - target).square();
}

}  // namespace troupe::training
