#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/learner/trainer.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/device_options.h"

namespace troupe::training {

/// What computes on the CPU.
enum class CpuBackend : uint8_t {
  kAuto = 1,      ///< fused where it can serve the policy, else LibTorch
  kFused = 2,     ///< hand-written AVX2/AVX-512 kernels; an error where they cannot serve the policy
  kLibTorch = 3,  ///< autograd
};

/// Makes the trainer of a run: each policy is trained as its AlgorithmSpec says. `algorithms` by policy slot; an empty
/// name: the policy is kept, not trained. Policies start with weights of version (0, 0) drawn from `seed`. May take
/// seconds (CUDA). INVALID_ARGUMENT for a bad spec, option or device, for an algorithm that there is not, and for a
/// capacity below the size of a learn group; UNAVAILABLE for `device: cuda` without one.
///
/// Sets LibTorch's thread count for the process; starts compute threads, which end with the trainer. A policy starts
/// over with ImportState. `store` says how many policies are resident, `store_deps` (which outlive the trainer) where
/// the others are.
absl::StatusOr<std::unique_ptr<learner::Trainer>> MakeTrainer(std::vector<policy::PolicySpec> specs,
                                                              std::vector<policy::AlgorithmSpec> algorithms,
                                                              const DeviceOptions& device, uint64_t seed,
                                                              CpuBackend cpu_backend = CpuBackend::kAuto,
                                                              const PolicyStoreOptions& store = {},
                                                              PolicyStore::Deps store_deps = {});

}  // namespace troupe::training
