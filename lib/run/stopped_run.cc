#include "lib/run/stopped_run.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/run_lock.h"

namespace troupe::run {
namespace {

using policy::PolicySpec;
using policy::PolicyTable;
using policy::PolicyTablePtr;

/// The first policy that the table gives the agent by name; nullptr: a function chooses among all.
const PolicySpec* FirstOf(const PolicyTable& table, const std::string& agent) {
  const policy::MappingRule* const rule = policy::FirstMatch(table.rules(), agent);
  if (rule == nullptr || rule->policies.empty()) return nullptr;
  const std::optional<policy::PolicySlot> slot = table.FindSlot(rule->policies[0].policy);
  return slot.has_value() ? &table.Find(*slot)->spec : nullptr;
}

/// Who played an agent until now has its spaces.
absl::Status CheckSpaces(const PolicyTable& next, const PolicyTable& now) {
  for (const std::string& agent : next.agent_ids()) {
    const PolicySpec* const before = FirstOf(now, agent);
    const policy::MappingRule* const rule = policy::FirstMatch(next.rules(), agent);
    if (before == nullptr || rule == nullptr) continue;
    for (const policy::WeightedPolicy& weighted : rule->policies) {
      TROUPE_ASSIGN_OR_RETURN(const policy::PolicySlot slot, next.SlotOf(weighted.policy));
      const PolicySpec& spec = next.Find(slot)->spec;
      if (spec.observation_space == before->observation_space && spec.action_space == before->action_space) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "policy \"", spec.id.value(), "\" cannot play agent \"", agent, "\": its spaces are ",
          spec.observation_space.ToString(), " and ", spec.action_space.ToString(), ", expected those of \"",
          before->id.value(), "\": ", before->observation_space.ToString(), " and ", before->action_space.ToString()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PolicyTablePtr> Changed(const policy::PolicyChange& change, const PolicyTable& now) {
  if (const auto* const remove = std::get_if<policy::RemovePolicy>(&change)) return now.Remove(remove->id);
  if (const auto* const set = std::get_if<policy::SetMapping>(&change)) {
    TROUPE_ASSIGN_OR_RETURN(PolicyTablePtr next, now.SetMapping(set->rules));
    TROUPE_RETURN_IF_ERROR(CheckSpaces(*next, now));
    return next;
  }
  return absl::FailedPreconditionError(
      "only a learner can make this change; start it again with troupe train --resume");
}

}  // namespace

absl::StatusOr<StoppedChange> ChangeStoppedRun(const std::string& folder, const policy::PolicyChange& change) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<storage::RunLock> lock, storage::RunLock::Take(folder));
  StoppedChange done;
  TROUPE_ASSIGN_OR_RETURN(done.checkpoint, storage::FindCheckpoint(fs, folder, "latest"));
  TROUPE_ASSIGN_OR_RETURN(const storage::CheckpointManifest manifest, storage::ReadManifest(fs, done.checkpoint));
  TROUPE_ASSIGN_OR_RETURN(const PolicyTablePtr now, storage::PoliciesOf(manifest, done.checkpoint));
  TROUPE_ASSIGN_OR_RETURN(const PolicyTablePtr next, Changed(change, *now));
  TROUPE_RETURN_IF_ERROR(policy::CheckSize(*next));
  TROUPE_RETURN_IF_ERROR(storage::AddPolicyTable(fs, done.checkpoint, *next));
  done.revision = next->revision();
  return done;
}

}  // namespace troupe::run
