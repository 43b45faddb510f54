#include "lib/training/torch/torch_parts.h"

namespace troupe::training {

// Its loss is A2C's.
TorchParts ImpalaTorch() { return {}; }

}  // namespace troupe::training
