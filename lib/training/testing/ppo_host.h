#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/ppo/ppo_options.h"
#include "lib/training/registry.h"

namespace troupe::training {

inline std::vector<policy::AlgorithmSpec> PpoSpecs(const std::vector<PpoOptions>& options) {
  std::vector<policy::AlgorithmSpec> specs;
  for (const PpoOptions& each : options) specs.push_back(PpoSpec(each));
  return specs;
}

/// TrainerHost::Make where all policies are trained by PPO.
inline absl::StatusOr<std::unique_ptr<TrainerHost>> MakePpoHost(
    std::vector<policy::PolicySpec> specs, const std::vector<PpoOptions>& options, uint64_t seed,
    TrainerHost::BackendFactory make_backend, std::shared_ptr<ThreadTeam> team = nullptr,
    tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable(),
    const PolicyStoreOptions& store_options = {}, PolicyStore::Deps store_deps = {}) {
  return TrainerHost::Make(std::move(specs), PpoSpecs(options), {.seed = seed, .team = std::move(team)}, &FindAlgorithm,
                           std::move(make_backend), allocator, store_options, std::move(store_deps));
}

}  // namespace troupe::training
