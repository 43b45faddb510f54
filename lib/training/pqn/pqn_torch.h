#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/group_trainer.h"
#include "lib/training/torch/torch_backend.h"

namespace troupe::training {

/// The trainer of policies that PQN trains together, on a path of its own choice (TorchGroup): the registry's takes
/// the context's device. INVALID_ARGUMENT, naming the key, for members of a team with different options.
absl::StatusOr<std::unique_ptr<GroupTrainer>> MakePqnGroup(absl::Span<const GroupMember> members,
                                                           const TrainingContext& context, TorchPath path);

}  // namespace troupe::training
