#include "lib/training/make_trainer.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/thread_team.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/registry.h"
#include "lib/training/torch/device.h"
#include "lib/training/torch/torch_backend.h"
#include "lib/training/torch/torch_parts.h"
#include "lib/training/torch/torch_precision.h"
#include <torch/torch.h>

namespace troupe::training {
namespace {

constexpr int kMaxThreads = 256;

absl::StatusOr<int> ThreadCount(const DeviceOptions& device) {
  if (device.num_threads < 0 || device.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("learner_threads is ", device.num_threads, "; expected 0 (the cores there are) to ", kMaxThreads));
  }
  if (device.num_threads > 0) return device.num_threads;
  return std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

}  // namespace

absl::StatusOr<std::unique_ptr<learner::Trainer>> MakeTrainer(std::vector<policy::PolicySpec> specs,
                                                              std::vector<policy::AlgorithmSpec> algorithms,
                                                              const DeviceOptions& device, uint64_t seed,
                                                              CpuBackend cpu_backend, const PolicyStoreOptions& store,
                                                              PolicyStore::Deps store_deps) {
  TROUPE_ASSIGN_OR_RETURN(const int threads, ThreadCount(device));
  TROUPE_ASSIGN_OR_RETURN(const Device place, ResolveDevice(device.device));
  if (place.is_cuda()) {
    SetFloat32Products(device.precision);
  } else if (device.precision != Precision::kFloat32) {
    TROUPE_WARN("precision is of a GPU: the CPU trains in float32 device={}", place.ToString());
  }
  // Two networks at a time share LibTorch's threads.
  torch::set_num_threads(place.is_cuda() ? threads : std::max(1, threads / 2));
  const auto team = std::make_shared<ThreadTeam>(place.is_cuda() ? 1 : threads);
  // Said once of a policy, however often it is loaded.
  const auto told = std::make_shared<std::set<policy::PolicyId>>();
  const auto fused_backends = std::make_shared<FusedBackends>(team);
  const Precision precision = device.precision;
  const auto make_backend = [=](const policy::PolicySpec& spec) -> absl::StatusOr<std::unique_ptr<NetworkBackend>> {
    if (place.is_cuda()) return MakeTorchBackend(spec, place, TorchPath::kDevice, team, precision);
    if (cpu_backend != CpuBackend::kLibTorch) {
      absl::StatusOr<std::unique_ptr<NetworkBackend>> fused = fused_backends->Make(spec);
      if (fused.ok() || cpu_backend == CpuBackend::kFused) return fused;
      if (told->insert(spec.id).second) {
        TROUPE_INFO("policy trains with LibTorch policy={} reason=\"{}\"", spec.id.value(),
                    std::string(fused.status().message()));
      }
    }
    return MakeTorchBackend(spec, place, TorchPath::kHost, team);
  };
  store_deps.make_module_backend = [=](const policy::PolicySpec& spec) {
    return MakeTorchBackend(spec, place, place.is_cuda() ? TorchPath::kDevice : TorchPath::kHost, team, precision);
  };
  TrainingContext context{.seed = seed, .team = team, .device = place, .precision = precision};
  context.make_torch_group = [](const Algorithm& algorithm, absl::Span<const GroupMember> members,
                                const TrainingContext& of) {
    return FindTorchParts(algorithm.name()).make_group(members, of);
  };
  return TrainerHost::Make(std::move(specs), std::move(algorithms), std::move(context), &FindAlgorithm, make_backend,
                           BatchAllocator(place), store, std::move(store_deps));
}

}  // namespace troupe::training
