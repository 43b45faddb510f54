#include "lib/training/core/group_trainer.h"

#include "absl/strings/str_cat.h"

namespace troupe::training {

absl::Status GroupTrainer::Import(const std::vector<policy::StateBlock>& blocks) {
  if (blocks.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("got block \"", blocks.front().name, "\"; expected none: the group keeps nothing of its own"));
}

}  // namespace troupe::training
