#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/group_trainer.h"
#include "lib/training/torch/torch_loss.h"

namespace troupe::training {

/// The part of an algorithm that is written for LibTorch: one of the two, as its StateForm::loss says.
struct TorchParts {
  const TorchLoss* row_loss = nullptr;  ///< with LossOver::kRows
  /// With LossOver::kTensors: makes its TorchGroup. Errors are Algorithm::MakeGroup's.
  absl::StatusOr<std::unique_ptr<GroupTrainer>> (*make_group)(absl::Span<const GroupMember>,
                                                              const TrainingContext&) = nullptr;
};

/// Those of the algorithm of that name; without either when there is none. From registry.inc.
TorchParts FindTorchParts(std::string_view name);

}  // namespace troupe::training
