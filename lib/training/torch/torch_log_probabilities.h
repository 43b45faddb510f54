#pragma once

#include <cstdint>
#include <vector>

#include "lib/policy/policy_fwd.h"
#include "lib/training/core/action_head.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/torch/device_memory.h"
#include "lib/training/torch/policy_modules.h"
#include "lib/training/torch/torch_batch.h"

namespace troupe::training {

/// NetworkBackend::LogProbabilities of a batch that is `loaded`, by the actor in `modules`, at most about `most_rows`
/// rows at a time. Raises what LibTorch raises.
std::vector<float> LogProbabilitiesOf(const policy::PolicySpec& spec, const ActionHead& head, const Modules& modules,
                                      const PreparedBatch& batch, const TorchBatch& loaded, const DeviceMemory& memory,
                                      bool bfloat16, int64_t most_rows);

}  // namespace troupe::training
