#include "lib/training/core/algorithm.h"

#include "absl/strings/str_cat.h"
#include "lib/training/core/group_trainer.h"

namespace troupe::training {

absl::StatusOr<std::unique_ptr<GroupTrainer>> Algorithm::MakeGroup(absl::Span<const GroupMember> members,
                                                                   const TrainingContext& context) const {
  if (context.make_torch_group != nullptr) return context.make_torch_group(*this, members, context);
  return absl::FailedPreconditionError(
      absl::StrCat(std::string(name()), " trains with LibTorch, which this program is without"));
}

}  // namespace troupe::training
