#include "services/policy_server/policy_server_process.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/make_env.h"
#include "lib/rpc/query_server.h"
#include "lib/serving/query_engine.h"
#include "lib/storage/checkpoint_weights.h"
#include "services/common/hosted_query_threads.h"
#include "services/common/run_policies.h"
#include "services/common/signals.h"

namespace troupe::services {
namespace {

// How often a signal is looked for: it bounds the start of a drain.
constexpr absl::Duration kSignalInterval = absl::Milliseconds(50);

uint64_t DrawSeed() {
  // Two servers of one run must not sample the same actions, nor one after a restart.
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

/// Reads a policy's weights when they are asked for.
class CheckpointSource final : public serving::WeightSource {
 public:
  explicit CheckpointSource(std::unique_ptr<storage::CheckpointWeights> weights) : weights_(std::move(weights)) {}
  absl::StatusOr<policy::WeightSnapshotPtr> Load(const policy::PolicySpec& spec) override {
    const absl::StatusOr<policy::PolicyState> state = weights_->Read(spec);
    if (state.ok()) return policy::SnapshotOf(*state, spec);
    // Whoever asks is told; a person has to look at the disk, and is told ever more rarely.
    const int64_t failures = failures_.fetch_add(1, std::memory_order_relaxed) + 1;
    if ((failures & (failures - 1)) == 0) {
      TROUPE_ERROR("weights cannot be read policy={} failures={} error=\"{}\"", spec.id.value(), failures,
                   base::LogSafe(std::string(state.status().message())));
    }
    return state.status();
  }

 private:
  const std::unique_ptr<storage::CheckpointWeights> weights_;
  std::atomic<int64_t> failures_{0};
};

}  // namespace

absl::Status RunPolicyServer(const PolicyServerFlags& flags, const env::EnvRegistry& registry) {
  TROUPE_ASSIGN_OR_RETURN(const RunCheckpoint found, FindRunCheckpoint(flags.run_folder, flags.checkpoint, registry));
  const std::vector<policy::PolicySpec>& policies = found.run.policies;
  const int64_t capacity = found.run.policy_map.capacity;
  storage::FileSystem& fs = storage::FileSystem::Posix();
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<storage::CheckpointWeights> weights,
                          storage::CheckpointWeights::Open(fs, found.checkpoint));
  CheckpointSource source(std::move(weights));
  TROUPE_ASSIGN_OR_RETURN(
      const std::unique_ptr<serving::QueryEngine> engine,
      serving::QueryEngine::Create(policies, {.seed = flags.seed.value_or(DrawSeed()),
                                              .policy_map_capacity = capacity,
                                              .source = &source,
                                              .actor_host = config::MakeQueriedPolicyHost(found.run.env)}));
  const HostedQueryThreads threads(engine.get());
  if (static_cast<int64_t>(policies.size()) <= capacity) {
    // All of them will be in memory: what is wrong with the checkpoint is better said now.
    TROUPE_ASSIGN_OR_RETURN(const std::vector<policy::WeightSnapshotPtr> all, LoadWeights(found));
    for (const policy::WeightSnapshotPtr& each : all) {
      if (each != nullptr) TROUPE_RETURN_IF_ERROR(engine->SetWeights(each));
    }
  }
  rpc::TransportSecurity security;
  security.insecure_plaintext_network = flags.insecure_plaintext_network;
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::QueryServer> server,
                          rpc::QueryServer::Start(flags.listen, security, engine.get()));
  TROUPE_INFO("policy server ready checkpoint={} policies={} policy_map_capacity={} listen=\"{}\"", found.checkpoint,
              policies.size(), capacity, absl::StrJoin(server->addresses(), " "));
  while (!DrainSignals::Received()) absl::SleepFor(kSignalInterval);
  TROUPE_INFO("signal received, answering what there is");
  server->Shutdown(flags.drain_timeout);
  const policy::PolicyMapStats stats = engine->MapStats();
  TROUPE_INFO("policy server drained map_hits={} map_misses={} map_evictions={} load_failures={}", stats.hits,
              stats.misses, stats.evictions, stats.load_failures);
  return absl::OkStatus();
}

}  // namespace troupe::services
