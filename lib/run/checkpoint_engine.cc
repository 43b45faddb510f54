#include "lib/run/checkpoint_engine.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/value_network.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"

namespace troupe::run {
namespace {

constexpr int64_t kDefaultCapacity = 100;  // as multi_agent.policy_map_capacity
constexpr char kBest[] = "best";

int64_t CapacityOf(const AskedCheckpoint& asked, const storage::CheckpointManifest& manifest) {
  if (asked.policy_map_capacity > 0) return asked.policy_map_capacity;
  if (manifest.policy_map_capacity <= 0) return kDefaultCapacity;
  return std::min(manifest.policy_map_capacity, static_cast<int64_t>(policy::PolicyTable::kMaxPolicies));
}

/// The revision that brought the active policy; -1: there is none of this id.
int64_t SinceOf(const policy::PolicyTable& table, const policy::PolicyId& id) {
  const std::optional<policy::PolicySlot> slot = table.FindSlot(id);
  return slot.has_value() ? table.Find(*slot)->since : -1;
}

}  // namespace

/// Reads a policy's weights when they are asked for.
class CheckpointEngine::Source final : public serving::WeightSource {
 public:
  explicit Source(std::unique_ptr<storage::CheckpointWeights> weights) : weights_(std::move(weights)) {
    for (const policy::PolicyState& state : weights_->manifest().state.policies) {
      if (!state.id.value().empty()) versions_[state.id.value()] = state.version;
    }
  }
  const storage::CheckpointWeights& weights() const { return *weights_; }
  /// (0, 0): it does not have the policy.
  policy::WeightVersion VersionOf(const policy::PolicyId& id) const {
    const auto found = versions_.find(id.value());
    return found == versions_.end() ? policy::WeightVersion() : found->second;
  }
  absl::StatusOr<policy::WeightSnapshotPtr> Load(const policy::PolicySpec& spec) override {
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyState state, Read(spec));
    return policy::SnapshotOf(state, spec);
  }
  absl::StatusOr<policy::WeightSnapshotPtr> LoadValues(const policy::PolicySpec& spec) override {
    const std::optional<policy::PolicySpec> network = policy::ValueNetworkOf(spec);
    if (!network.has_value()) return WeightSource::LoadValues(spec);
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyState state, Read(spec));
    return policy::ValueSnapshotOf(state, spec, *network);
  }

 private:
  absl::StatusOr<policy::PolicyState> Read(const policy::PolicySpec& spec) {
    absl::StatusOr<policy::PolicyState> state = weights_->Read(spec);
    if (state.ok()) return state;
    // Whoever asks is told; a person has to look at the disk, and is told ever more rarely.
    const int64_t failures = failures_.fetch_add(1, std::memory_order_relaxed) + 1;
    if ((failures & (failures - 1)) == 0) {
      TROUPE_ERROR("weights cannot be read policy={} failures={} error=\"{}\"", spec.id.value(), failures,
                   base::LogSafe(std::string(state.status().message())));
    }
    return state;
  }

  const std::unique_ptr<storage::CheckpointWeights> weights_;
  std::map<std::string, policy::WeightVersion> versions_;  ///< by policy id
  std::atomic<int64_t> failures_{0};
};

CheckpointEngine::CheckpointEngine(const AskedCheckpoint& asked) : asked_(asked) {}
CheckpointEngine::~CheckpointEngine() = default;

absl::StatusOr<CheckpointEngine::Opened> CheckpointEngine::OpenFolder(const std::string& folder) const {
  Opened opened;
  opened.folder = folder;
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<storage::CheckpointWeights> weights,
                          storage::CheckpointWeights::Open(storage::FileSystem::Posix(), folder));
  TROUPE_ASSIGN_OR_RETURN(opened.table, weights->Policies());
  opened.source = std::make_shared<Source>(std::move(weights));
  return opened;
}

absl::Status CheckpointEngine::MakeEngine(const Opened& opened) {
  capacity_ = CapacityOf(asked_, opened.source->weights().manifest());
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<inference::ActorHost> actor_host,
                          MakeActorHost(*opened.table, asked_.permits));
  runs_python_ = actor_host != nullptr;
  TROUPE_ASSIGN_OR_RETURN(
      engine_, serving::QueryEngine::Create(ActiveSpecs(*opened.table), {.seed = asked_.seed.value_or(DrawSeed()),
                                                                         .policy_map_capacity = capacity_,
                                                                         .has_values = true,
                                                                         .actor_host = std::move(actor_host)}));
  return absl::OkStatus();
}

absl::Status CheckpointEngine::CheckIsNewer(const Opened& opened) const {
  for (const serving::PolicyDescription& served : engine_->ListPolicies().policies) {
    const policy::WeightVersion there = opened.source->VersionOf(served.policy_id);
    if (there == policy::WeightVersion() || !(there < served.version)) continue;
    if (table_ != nullptr && SinceOf(*table_, served.policy_id) != SinceOf(*opened.table, served.policy_id)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        opened.folder, " has version ", there.n, " of learner epoch ", there.learner_epoch, " of policy \"",
        served.policy_id.value(), "\", but version ", served.version.n, " of learner epoch ",
        served.version.learner_epoch, " is served: start the server again to serve another run"));
  }
  return absl::OkStatus();
}

absl::Status CheckpointEngine::Take(const Opened& opened) {
  const std::vector<policy::PolicySpec> policies = ActiveSpecs(*opened.table);
  TROUPE_RETURN_IF_ERROR(CheckIsNewer(opened));
  // All that may fail comes first, so that nothing is served by halves: before policies change, their weights are read.
  // Where all of them will be in memory, what is wrong with the checkpoint is better said now.
  const bool reads = static_cast<int64_t>(policies.size()) <= capacity_;
  std::vector<policy::WeightSnapshotPtr> snapshots;
  for (const policy::PolicySpec& spec : policies) {
    if (!reads || !spec.policy_class.has_weights()) continue;
    TROUPE_ASSIGN_OR_RETURN(const policy::PolicyState state, opened.source->weights().Read(spec));
    TROUPE_ASSIGN_OR_RETURN(snapshots.emplace_back(), policy::SnapshotOf(state, spec));
  }
  TROUPE_RETURN_IF_ERROR(engine_->SetPolicies(*opened.table));  // says who plays them, too
  size_t next = 0;
  for (const policy::PolicySpec& spec : policies) {
    if (!spec.policy_class.has_weights()) continue;
    TROUPE_RETURN_IF_ERROR(engine_->SetSource(spec.id, opened.source->VersionOf(spec.id), opened.source,
                                              reads ? std::move(snapshots[next++]) : nullptr));
  }
  checkpoint_ = opened.folder;
  table_ = opened.table;
  num_policies_ = policies.size();
  return absl::OkStatus();
}

absl::StatusOr<bool> CheckpointEngine::RefreshLabel(const std::string& label, const std::string& which) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  const auto find = [&]() -> absl::StatusOr<std::string> {
    absl::StatusOr<std::string> folder = storage::FindCheckpoint(fs, asked_.run_folder, which);
    // A run need not have a best one, and may lose it.
    if (absl::IsNotFound(folder.status()) && which == kBest) return "";
    return folder;
  };
  return storage::ReadFoundCheckpoint(fs, find, [&](const std::string& folder) { return Offer(label, folder); });
}

absl::StatusOr<bool> CheckpointEngine::Offer(const std::string& label, const std::string& folder) {
  std::string& known = label_folders_[label];
  if (known == folder) return false;
  std::map<std::string, serving::OfferedWeights> weights;
  if (!folder.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const Opened opened, OpenFolder(folder));
    const std::vector<policy::PolicySpec> there = ActiveSpecs(*opened.table);
    for (const policy::PolicySpec& spec : ActiveSpecs(*table_)) {
      // A policy of today that was another one then has no weights there.
      const bool is_same = std::any_of(there.begin(), there.end(), [&spec](const policy::PolicySpec& other) {
        return other.id == spec.id && other.ToString() == spec.ToString();
      });
      if (!is_same || !spec.policy_class.has_weights()) continue;
      weights[spec.id.value()] = {opened.source->VersionOf(spec.id), nullptr, opened.source};
    }
  }
  TROUPE_RETURN_IF_ERROR(engine_->SetLabel(label, weights));
  known = folder;
  return true;
}

absl::StatusOr<std::unique_ptr<CheckpointEngine>> CheckpointEngine::Open(const AskedCheckpoint& asked) {
  std::unique_ptr<CheckpointEngine> engine(new CheckpointEngine(asked));
  const auto take = [&engine](const std::string& folder) -> absl::StatusOr<bool> {
    TROUPE_ASSIGN_OR_RETURN(const Opened opened, engine->OpenFolder(folder));
    TROUPE_RETURN_IF_ERROR(engine->MakeEngine(opened));
    TROUPE_RETURN_IF_ERROR(engine->Take(opened));
    return true;
  };
  TROUPE_RETURN_IF_ERROR(
      storage::ReadNamedCheckpoint(storage::FileSystem::Posix(), asked.run_folder, asked.checkpoint, take).status());
  for (const auto& [label, which] : asked.labels) {
    TROUPE_RETURN_IF_ERROR(engine->RefreshLabel(label, which).status());
  }
  return engine;
}

absl::StatusOr<bool> CheckpointEngine::RefreshNewest() {
  const auto take = [this](const std::string& folder) { return TakeNewer(folder); };
  return storage::ReadNamedCheckpoint(storage::FileSystem::Posix(), asked_.run_folder, asked_.checkpoint, take);
}

absl::StatusOr<bool> CheckpointEngine::TakeNewer(const std::string& folder) {
  if (folder == checkpoint_) return false;
  TROUPE_ASSIGN_OR_RETURN(const Opened opened, OpenFolder(folder));
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<inference::ActorHost> actor_host,
                          MakeActorHost(*opened.table, asked_.permits));
  if (actor_host != nullptr && !runs_python_) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " has the first policies in Python of this run; start the server again to serve it"));
  }
  TROUPE_RETURN_IF_ERROR(Take(opened));
  return true;
}

absl::StatusOr<bool> CheckpointEngine::Refresh() {
  // What cannot be served keeps nothing else from being served.
  bool changed = false;
  absl::Status failed;
  const auto note = [&](const absl::StatusOr<bool>& moved) {
    failed.Update(moved.status());
    changed = changed || (moved.ok() && *moved);
  };
  note(RefreshNewest());
  for (const auto& [label, which] : asked_.labels) note(RefreshLabel(label, which));
  if (!failed.ok()) return failed;
  return changed;
}

}  // namespace troupe::run
