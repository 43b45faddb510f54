#include "lib/run/learner/policy_map_cache.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/crc32c.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/run_folder.h"

namespace troupe::run {
namespace {

constexpr char kProbe[] = "probe";

std::string FolderOf(const RunSetup& setup) {
  if (setup.run.policy_map_cache.empty()) return setup.folder->Path("policy_map");
  // Runs of one name may lie in several folders.
  const std::string run = std::filesystem::absolute(setup.folder->directory()).lexically_normal().string();
  return absl::StrCat(setup.run.policy_map_cache, "/", setup.name, "-",
                      absl::Hex(base::Crc32c(run.data(), run.size()), absl::kZeroPad8));
}

}  // namespace

PolicyMapCache::PolicyMapCache(const RunSetup* setup, DrawState draw)
    : setup_(*setup), draw_(std::move(draw)), blobs_(FolderOf(*setup)) {}

absl::Status PolicyMapCache::Open() {
  opened_ = true;
  absl::Status usable = blobs_.Clear();
  const bool needed = static_cast<int64_t>(setup_.run.policies.size()) > setup_.run.policy_map.capacity;
  if (usable.ok() && needed) {
    usable = blobs_.Put(kProbe, kProbe);
    if (usable.ok()) usable = blobs_.Delete(kProbe);
  }
  if (usable.ok()) return usable;
  return absl::Status(usable.code(), absl::StrCat("multi_agent.policy_map_cache: expected a folder to write to, got ",
                                                  std::string(usable.message())));
}

void PolicyMapCache::Remove() {
  if (!std::exchange(opened_, false)) return;
  const absl::Status removed = blobs_.Clear();
  if (!removed.ok()) TROUPE_WARN("policy map cache not removed error=\"{}\"", std::string(removed.message()));
}

absl::StatusOr<policy::PolicyState> PolicyMapCache::Fallback(policy::PolicySlot slot) const {
  const auto index = static_cast<size_t>(slot.value());
  const config::ResolvedRun& run = setup_.run;
  const policy::PolicyEntry* const entry = policies_->Find(slot);
  if (entry == nullptr) return absl::NotFoundError(absl::StrCat("there is no policy in slot ", slot.value()));
  storage::FileSystem& fs = storage::FileSystem::Posix();
  const absl::StatusOr<std::string> latest = storage::FindCheckpoint(fs, setup_.folder->directory(), "latest");
  if (latest.ok()) {
    TROUPE_ASSIGN_OR_RETURN(learner::LearnerState state,
                            storage::ReadCheckpoint(fs, *latest, run.policies, run.schema.Hash()));
    const policy::PolicyEntry* const saved = state.table == nullptr ? entry : state.table->Find(slot);
    const bool is_it = index < state.policies.size() && saved != nullptr && saved->since == entry->since &&
                       state.policies[index].id == entry->spec.id;
    if (is_it) return std::move(state.policies[index]);
    return absl::NotFoundError("the newest checkpoint is older than the policy");
  }
  if (latest.status().code() != absl::StatusCode::kNotFound) return latest.status();
  if (entry->since > 0) return absl::NotFoundError("there is no checkpoint since the policy came");
  if (index < setup_.initial.size() && setup_.initial[index]) return *setup_.initial[index];
  return draw_(run.policies[index], run.algorithms[index], run.seed);
}

}  // namespace troupe::run
