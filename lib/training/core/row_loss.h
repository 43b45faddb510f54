#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "lib/training/core/fused_kernels.h"
#include "lib/training/core/prepared_batch.h"

namespace troupe::training {

using fused::kLossNumbers;
using fused::kLossStatistics;

/// Columns of a PreparedBatch that a loss reads as a row's constants.
enum class RowColumn : uint8_t {
  kOldLogp = 1,      ///< of the action, by the policy that the ratio is to
  kAdvantage = 2,    ///< as the updater has normalized it
  kValueTarget = 3,  ///< in the critic's units
  kOldValue = 4,     ///< the critic's before the update
};

inline absl::Span<const float> ColumnOf(const PreparedBatch& batch, RowColumn column) {
  switch (column) {
    case RowColumn::kOldLogp:
      return batch.old_logp;
    case RowColumn::kAdvantage:
      return batch.targets.advantages;
    case RowColumn::kValueTarget:
      return batch.targets.value_targets;
    case RowColumn::kOldValue:
      return batch.targets.old_values;
  }
  return {};
}

/// A loss of rows, which back ends compile into their pass over a minibatch: of the log-probability of a row's action,
/// of the critic's value, and of the row's constants. An algorithm's folder has one, for ever; here is what is the same
/// for all back ends and the code for the fused kernels, that for LibTorch is a TorchLoss of the same name.
///
/// The loss of a minibatch, of which a back end takes the gradient, is
///   actor:  the mean over rows of -objective, minus entropy_coeff times that of the entropy, and what a loss adds
///           that is no part of its objective (a penalty on a divergence);
///   critic: value_loss_coeff times the mean of the error.
struct RowLoss {
  std::string_view name;  ///< the algorithm's
  absl::Span<const RowColumn>
      actor_columns;  ///< at most fused::kMaxLossColumns, in the order in which the code reads them
  absl::Span<const RowColumn> critic_columns;
  /// The code for that vector unit; nullptr where the build or the algorithm has none.
  const fused::LossKernels* (*kernels)(fused::Unit unit) = nullptr;
};

/// A loss with the coefficients of its own, in an order that only its folder knows.
struct RowLossCall {
  const RowLoss* loss = nullptr;
  std::array<double, kLossNumbers> numbers = {};
  /// Instead of `loss`, with LossOver::kModule: the SHA-256 of a user's module among policy::ModuleFiles.
  std::string module = {};

  bool operator==(const RowLossCall& other) const = default;
};

}  // namespace troupe::training
