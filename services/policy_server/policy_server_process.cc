#include "services/policy_server/policy_server_process.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/process_memory.h"
#include "lib/base/status_macros.h"
#include "lib/config/make_env.h"
#include "lib/config/permits.h"
#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"
#include "lib/rpc/query_server.h"
#include "lib/serving/query_engine.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"
#include "services/common/hosted_query_threads.h"
#include "services/common/signals.h"
#include "services/common/watchdog.h"

namespace troupe::services {
namespace {

// How often a signal is looked for: it bounds the start of a drain.
constexpr absl::Duration kSignalInterval = absl::Milliseconds(50);
// How long the watchdog waits for an answer: three times that and it is 15 s since the first.
constexpr absl::Duration kDialTimeout = absl::Seconds(4);

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

constexpr int64_t kDefaultCapacity = 100;  // as multi_agent.policy_map_capacity

/// The policies that may be asked.
std::vector<policy::PolicySpec> ActiveSpecs(const policy::PolicyTable& table) {
  std::vector<policy::PolicySpec> specs;
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    if (entry.has_value() && entry->active()) specs.push_back(entry->spec);
  }
  return specs;
}

/// Where policies in Python are asked; nullptr: the run has none. What it names must stand in the operator's own
/// configuration, name by name, which also says with which interpreter.
absl::StatusOr<std::shared_ptr<inference::ActorHost>> MakeActorHost(const policy::PolicyTable& table,
                                                                    const std::string& config_path) {
  const std::set<config::Statement> asked = config::StatementsOf(table);
  if (asked.empty()) return nullptr;
  config::RunConfig own;
  if (!config_path.empty()) {
    TROUPE_ASSIGN_OR_RETURN(own, config::RunConfig::FromFile(config_path));
  }
  const std::set<config::Statement> permitted = config::StatementsOf(own);
  for (const config::Statement& each : asked) {
    if (permitted.count(each) > 0) continue;
    return base::WithExitCode(
        absl::PermissionDeniedError(absl::StrCat("the run names ", base::LogSafe(each.name),
                                                 ", which nothing of yours permits, expected --config FILE with a "
                                                 "configuration that names it, too")),
        base::ExitCode::kRefused);
  }
  TROUPE_ASSIGN_OR_RETURN(const config::EnvSettings settings, config::EnvSettingsOf(own));
  return config::MakeQueriedPolicyHost(settings);
}

int64_t CapacityOf(const PolicyServerFlags& flags, const storage::CheckpointManifest& manifest) {
  if (flags.policy_map_capacity > 0) return flags.policy_map_capacity;
  if (manifest.policy_map_capacity <= 0) return kDefaultCapacity;
  return std::min(manifest.policy_map_capacity, static_cast<int64_t>(policy::PolicyTable::kMaxPolicies));
}

}  // namespace

absl::Status RunPolicyServer(const PolicyServerFlags& flags) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  TROUPE_ASSIGN_OR_RETURN(const std::string checkpoint,
                          storage::FindCheckpoint(fs, flags.run_folder, flags.checkpoint));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<storage::CheckpointWeights> weights,
                          storage::CheckpointWeights::Open(fs, checkpoint));
  TROUPE_ASSIGN_OR_RETURN(const policy::PolicyTablePtr table, weights->Policies());
  const std::vector<policy::PolicySpec> policies = ActiveSpecs(*table);
  const int64_t capacity = CapacityOf(flags, weights->manifest());
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<inference::ActorHost> actor_host, MakeActorHost(*table, flags.config_path));
  const storage::CheckpointWeights& stored = *weights;
  CheckpointSource source(std::move(weights));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<serving::QueryEngine> engine,
                          serving::QueryEngine::Create(policies, {.seed = flags.seed.value_or(DrawSeed()),
                                                                  .policy_map_capacity = capacity,
                                                                  .source = &source,
                                                                  .actor_host = std::move(actor_host)}));
  const HostedQueryThreads threads(engine.get());
  if (static_cast<int64_t>(policies.size()) <= capacity) {
    // All of them will be in memory: what is wrong with the checkpoint is better said now.
    for (const policy::PolicySpec& spec : policies) {
      if (!spec.policy_class.has_weights()) continue;
      TROUPE_ASSIGN_OR_RETURN(const policy::PolicyState state, stored.Read(spec));
      TROUPE_ASSIGN_OR_RETURN(const policy::WeightSnapshotPtr snapshot, policy::SnapshotOf(state, spec));
      TROUPE_RETURN_IF_ERROR(engine->SetWeights(snapshot));
    }
  }
  rpc::TransportSecurity security;
  security.insecure_plaintext_network = flags.insecure_plaintext_network;
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::QueryServer> server,
                          rpc::QueryServer::Start(flags.listen, security, engine.get()));
  TROUPE_INFO("policy server ready checkpoint={} policies={} policy_map_capacity={} listen=\"{}\"", checkpoint,
              policies.size(), capacity, absl::StrJoin(server->addresses(), " "));
  base::HeapTrimmer heap_trimmer;
  Watchdog::Actions actions;
  actions.dial = [&server] { return server->DialSelf(kDialTimeout); };
  // There is nothing to save.
  actions.on_deaf = [](const std::string&) { EndDeafProcess(); };
  actions.end = &EndDeafProcess;
  Watchdog watchdog({}, std::move(actions));
  while (!DrainSignals::Received()) {
    absl::SleepFor(kSignalInterval);
    heap_trimmer.MaybeTrim(base::Clock::Real().SteadyNow());
  }
  watchdog.StopDialing();
  TROUPE_INFO("signal received, answering what there is");
  server->Shutdown(flags.drain_timeout);
  const policy::PolicyMapStats stats = engine->MapStats();
  TROUPE_INFO("policy server drained map_hits={} map_misses={} map_evictions={} load_failures={}", stats.hits,
              stats.misses, stats.evictions, stats.load_failures);
  return absl::OkStatus();
}

}  // namespace troupe::services
