#include "lib/run/checkpoint_engine.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/make_env.h"
#include "lib/config/permits.h"
#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"
#include "lib/config/torch_modules.h"
#include "lib/policy/module_files.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"

namespace troupe::run {
namespace {

uint64_t DrawSeed() {
  // Two servers of one run must not sample the same actions, nor one after a restart.
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

constexpr int64_t kDefaultCapacity = 100;  // as multi_agent.policy_map_capacity

/// The policies that may be asked.
std::vector<policy::PolicySpec> ActiveSpecs(const policy::PolicyTable& table) {
  std::vector<policy::PolicySpec> specs;
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    if (entry.has_value() && entry->active()) specs.push_back(entry->spec);
  }
  return specs;
}

/// Where policies in Python are asked; nullptr: the run has none. What it names in Python, or as TorchScript files,
/// must be the operator's own: in their configuration, name by name, which also says with which interpreter, or a file.
absl::StatusOr<std::shared_ptr<inference::ActorHost>> MakeActorHost(const policy::PolicyTable& table,
                                                                    const AskedCheckpoint& asked) {
  std::set<config::Statement> named = config::StatementsOf(table);
  // Critics are not asked here, so nobody runs theirs.
  std::set<std::string> acting;
  for (const policy::PolicySpec& spec : ActiveSpecs(table)) {
    acting.insert(absl::StrCat(std::string(policy::kModuleHashPrefix), spec.actor.module.sha256));
  }
  std::erase_if(named, [&acting](const config::Statement& each) {
    return each.kind == config::Statement::Kind::kModule && acting.count(each.name) == 0;
  });
  if (named.empty()) return nullptr;
  config::RunConfig own;
  if (!asked.config_path.empty()) {
    TROUPE_ASSIGN_OR_RETURN(own, config::RunConfig::FromFile(asked.config_path));
    TROUPE_ASSIGN_OR_RETURN(own, config::PinModules(own));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> modules, config::AddModuleFiles(asked.modules));
  TROUPE_ASSIGN_OR_RETURN(const config::Permits permits, config::Permits::Make(own, {}, modules));
  for (const config::Statement& each : named) {
    if (permits.Permit(each)) continue;
    const bool is_module = each.kind == config::Statement::Kind::kModule;
    return base::WithExitCode(
        absl::PermissionDeniedError(absl::StrCat(
            "the run names ", base::LogSafe(each.name), ", which nothing of yours permits, expected ",
            is_module ? "--allow-torchscript FILE with that SHA-256 (the run keeps it in torchscript/), or " : "",
            "--config FILE with a configuration that names it, too")),
        base::ExitCode::kRefused);
  }
  TROUPE_ASSIGN_OR_RETURN(const config::EnvSettings settings, config::EnvSettingsOf(own));
  return config::MakeQueriedPolicyHost(settings);
}

int64_t CapacityOf(const AskedCheckpoint& asked, const storage::CheckpointManifest& manifest) {
  if (asked.policy_map_capacity > 0) return asked.policy_map_capacity;
  if (manifest.policy_map_capacity <= 0) return kDefaultCapacity;
  return std::min(manifest.policy_map_capacity, static_cast<int64_t>(policy::PolicyTable::kMaxPolicies));
}

}  // namespace

/// Reads a policy's weights when they are asked for.
class CheckpointEngine::Source final : public serving::WeightSource {
 public:
  explicit Source(std::unique_ptr<storage::CheckpointWeights> weights) : weights_(std::move(weights)) {}
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

CheckpointEngine::CheckpointEngine() = default;
CheckpointEngine::~CheckpointEngine() = default;

absl::StatusOr<std::unique_ptr<CheckpointEngine>> CheckpointEngine::Open(const AskedCheckpoint& asked) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  std::unique_ptr<CheckpointEngine> opened(new CheckpointEngine());
  TROUPE_ASSIGN_OR_RETURN(opened->checkpoint_, storage::FindCheckpoint(fs, asked.run_folder, asked.checkpoint));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<storage::CheckpointWeights> weights,
                          storage::CheckpointWeights::Open(fs, opened->checkpoint_));
  TROUPE_ASSIGN_OR_RETURN(const policy::PolicyTablePtr table, weights->Policies());
  const std::vector<policy::PolicySpec> policies = ActiveSpecs(*table);
  opened->num_policies_ = policies.size();
  opened->capacity_ = CapacityOf(asked, weights->manifest());
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<inference::ActorHost> actor_host, MakeActorHost(*table, asked));
  const storage::CheckpointWeights& stored = *weights;
  opened->source_ = std::make_unique<Source>(std::move(weights));
  TROUPE_ASSIGN_OR_RETURN(opened->engine_,
                          serving::QueryEngine::Create(policies, {.seed = asked.seed.value_or(DrawSeed()),
                                                                  .policy_map_capacity = opened->capacity_,
                                                                  .source = opened->source_.get(),
                                                                  .actor_host = std::move(actor_host)}));
  TROUPE_RETURN_IF_ERROR(opened->engine_->SetPolicies(*table));  // says who plays them
  if (static_cast<int64_t>(policies.size()) > opened->capacity_) return opened;
  // All of them will be in memory: what is wrong with the checkpoint is better said now.
  for (const policy::PolicySpec& spec : policies) {
    if (!spec.policy_class.has_weights()) continue;
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyState state, stored.Read(spec));
    TROUPE_ASSIGN_OR_RETURN(const policy::WeightSnapshotPtr snapshot, policy::SnapshotOf(state, spec));
    TROUPE_RETURN_IF_ERROR(opened->engine_->SetWeights(snapshot));
  }
  return opened;
}

}  // namespace troupe::run
