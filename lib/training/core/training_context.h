#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/training/core/thread_team.h"
#include "lib/training/device_options.h"

namespace troupe::training {

class Algorithm;
class GroupTrainer;
struct GroupMember;

/// A run's training, for whoever makes a learn group's trainer. Plain value.
struct TrainingContext {
  uint64_t seed = 0;                           ///< the run's: fresh state is drawn from it
  std::shared_ptr<ThreadTeam> team = nullptr;  ///< nullptr: groups train one after another
  Device device = {};                          ///< never kAuto
  Precision precision = Precision::kFloat32;   ///< of a CUDA device's products
  /// Makes the trainer of an algorithm whose loss is over tensors (TorchParts); empty without LibTorch.
  std::function<absl::StatusOr<std::unique_ptr<GroupTrainer>>(const Algorithm&, absl::Span<const GroupMember>,
                                                              const TrainingContext&)>
      make_torch_group = {};
};

}  // namespace troupe::training
