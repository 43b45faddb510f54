#include <string_view>

#include "lib/training/core/algorithm.h"
#include "lib/training/torch/torch_parts.h"

namespace troupe::training {

#define TROUPE_ALGORITHM(Name)        \
  const Algorithm& Name##Algorithm(); \
  TorchParts Name##Torch();
#include "lib/training/registry.inc"
#undef TROUPE_ALGORITHM

TorchParts FindTorchParts(std::string_view name) {
#define TROUPE_ALGORITHM(Name) \
  if (Name##Algorithm().name() == name) return Name##Torch();
#include "lib/training/registry.inc"
#undef TROUPE_ALGORITHM
  return {};
}

}  // namespace troupe::training
