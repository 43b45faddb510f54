#pragma once

#include "lib/training/a2c/a2c_options.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/row_loss.h"

namespace troupe::training {

/// A2C: one pass over a batch by the policy that made it, so no ratio and no clip. Its groups are of one policy each.
const Algorithm& A2cAlgorithm();

/// Its loss, which has no coefficients of its own.
RowLossCall A2cLossCall();

}  // namespace troupe::training
