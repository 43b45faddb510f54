#include "lib/training/torch/torch_parts.h"

namespace troupe::training {

// Its loss is PPO's.
TorchParts AppoTorch() { return {}; }

}  // namespace troupe::training
