#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/device.h"
#include "lib/training/ppo_backend.h"
#include "lib/training/thread_team.h"

namespace troupe::training {

/// Where TorchBackend runs the optimizer.
enum class OptimizerPlace : uint8_t {
  kHost = 1,    ///< in a loop over the flat buffers, with a look at every loss; for the CPU
  kDevice = 2,  ///< as tensor operations that never wait for the device; for CUDA, and on the CPU to test them
};

/// PPO with LibTorch's autograd: any model, CPU and CUDA. Its modules are views of the flat parameters, their gradients
/// views of one flat gradient. On the CPU actor and critic are two tasks of `team`; on CUDA the parameters are on the
/// device from Begin to End.
absl::StatusOr<std::unique_ptr<PpoBackend>> MakeTorchBackend(const policy::PolicySpec& spec, DeviceKind device,
                                                             OptimizerPlace optimizer,
                                                             std::shared_ptr<ThreadTeam> team);

}  // namespace troupe::training
