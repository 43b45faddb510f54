#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/device_options.h"
#include "lib/training/policy_store.h"
#include "lib/training/ppo_options.h"

namespace troupe::training {

/// What computes on the CPU.
enum class CpuBackend : uint8_t {
  kAuto = 1,      ///< fused where it can serve the policy, else LibTorch
  kFused = 2,     ///< hand-written AVX2/AVX-512 kernels; an error where they cannot serve the policy
  kLibTorch = 3,  ///< autograd
};

/// Makes the trainer that `algorithm: mappo | ippo | ppo` stands for, with `options` by policy slot. Policies
/// start with weights of version (0, 0) drawn from `seed`. May take seconds (CUDA). INVALID_ARGUMENT for a bad spec,
/// option or device; UNAVAILABLE for `device: cuda` without one.
///
/// Sets LibTorch's thread count for the process; starts compute threads, which end with the trainer. A policy starts
/// over with ImportState. `store` says how many policies are resident, `store_deps` (which outlive the trainer) where
/// the others are.
absl::StatusOr<std::unique_ptr<learner::Trainer>> MakePpoTrainer(std::vector<policy::PolicySpec> specs,
                                                                 std::vector<PpoOptions> options,
                                                                 const DeviceOptions& device, uint64_t seed,
                                                                 CpuBackend cpu_backend = CpuBackend::kAuto,
                                                                 const PolicyStoreOptions& store = {},
                                                                 PolicyStore::Deps store_deps = {});

}  // namespace troupe::training
