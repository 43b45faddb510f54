#pragma once

#include "lib/training/core/algorithm.h"
#include "lib/training/core/row_loss.h"
#include "lib/training/ppo/ppo_options.h"

namespace troupe::training {

/// IPPO and MAPPO as one PPO over flat parameters; which critic input a policy has stands in its PolicySpec. Its groups
/// are of one policy each.
const Algorithm& PpoAlgorithm();

/// Its loss, with the coefficients that `options` give it.
RowLossCall PpoLossCall(const PpoOptions& options);

}  // namespace troupe::training
