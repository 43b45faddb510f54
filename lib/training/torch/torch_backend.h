#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/core/thread_team.h"
#include "lib/training/device_options.h"

namespace troupe::training {

/// Where LibTorch computes an update.
enum class TorchPath : uint8_t {
  /// On the host's own memory, borrowed; the optimizer is a loop that looks at every loss. For the CPU.
  kHost = 1,
  /// On copies in the device's memory: parameters, optimizer and batch go there once an update and come back at its
  /// end, and no minibatch step waits for the device. For CUDA, and on the CPU to test it.
  kDevice = 2,
};

/// LibTorch's autograd: any activation and width, CPU and CUDA. Its modules are views of the flat parameters, their
/// gradients views of one flat gradient. On the host's path actor and critic are two tasks of `team`. An update that
/// fails gives the device's memory back. INVALID_ARGUMENT for a CUDA device with the host's path, UNIMPLEMENTED for an
/// encoder of a kind that it does not know; for a user's module what LoadScript says. `precision`: of the device's
/// path; kTf32 is the process's (SetFloat32Products).
absl::StatusOr<std::unique_ptr<NetworkBackend>> MakeTorchBackend(const policy::PolicySpec& spec, const Device& device,
                                                                 TorchPath path, std::shared_ptr<ThreadTeam> team,
                                                                 Precision precision = Precision::kFloat32);

}  // namespace troupe::training
