#include <string_view>

#include "lib/training/core/algorithm.h"
#include "lib/training/torch/torch_loss.h"

namespace troupe::training {

#define TROUPE_ALGORITHM(Name)        \
  const Algorithm& Name##Algorithm(); \
  const TorchLoss* Name##TorchLoss();
#include "lib/training/registry.inc"
#undef TROUPE_ALGORITHM

const TorchLoss* FindTorchLoss(std::string_view name) {
#define TROUPE_ALGORITHM(Name) \
  if (Name##Algorithm().name() == name) return Name##TorchLoss();
#include "lib/training/registry.inc"
#undef TROUPE_ALGORITHM
  return nullptr;
}

}  // namespace troupe::training
