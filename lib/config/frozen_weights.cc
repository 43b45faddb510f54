#include "lib/config/frozen_weights.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/schema.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"

namespace troupe::config {

using policy::PolicySpec;
using policy::PolicyState;

absl::StatusOr<std::string> FindCheckpointAt(const std::string& path) {
  storage::FileSystem& fs = storage::FileSystem::Posix();
  if (fs.Exists(path + "/manifest.json")) return path;
  if (fs.Exists(path + "/config.yaml")) return storage::FindCheckpoint(fs, path, "latest");
  return absl::NotFoundError(absl::StrCat("\"", base::LogSafe(path), "\" is neither a checkpoint nor a run folder"));
}

absl::StatusOr<PolicyState> LoadPolicy(const std::string& path, const policy::PolicyId& source, const PolicySpec& spec,
                                       PolicyPart part) {
  TROUPE_ASSIGN_OR_RETURN(const std::string directory, FindCheckpointAt(path));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<storage::CheckpointWeights> weights,
                          storage::CheckpointWeights::Open(storage::FileSystem::Posix(), directory));
  TROUPE_ASSIGN_OR_RETURN(const policy::PolicyTablePtr table, weights->Policies());
  std::vector<PolicySpec> specs = table->Specs();
  specs.erase(
      std::remove_if(specs.begin(), specs.end(), [](const PolicySpec& free) { return free.id.value().empty(); }),
      specs.end());
  const policy::PolicyId& id = source.value().empty() ? spec.id : source;
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&id](const PolicySpec& candidate) { return candidate.id == id; });
  const std::string what = absl::StrCat("policy \"", id.value(), "\" of ", base::LogSafe(directory));
  if (found == specs.end()) {
    const auto append_id = [](std::string* out, const PolicySpec& candidate) { out->append(candidate.id.value()); };
    return absl::NotFoundError(absl::StrCat(what, " is not there; expected one of ",
                                            absl::StrJoin(specs, ", ", append_id), ", as checkpoint:PATH#ID"));
  }
  if (!found->policy_class.has_weights()) {
    return absl::FailedPreconditionError(absl::StrCat(
        what, " is of class ", base::LogSafe(found->policy_class.ToString(), 128), ", which has no weights"));
  }
  if (const std::string difference = policy::FirstDifference(*found, spec); !difference.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(what, " does not fit: ", difference));
  }
  TROUPE_ASSIGN_OR_RETURN(PolicyState state,
                          part == PolicyPart::kWeights ? weights->Read(*found) : weights->ReadWhole(*found));
  state.id = spec.id;
  state.version = {};
  TROUPE_RETURN_IF_ERROR(state.Validate(spec));
  return state;
}

absl::StatusOr<std::vector<std::optional<PolicyState>>> LoadFrozenWeights(const ResolvedRun& run) {
  std::vector<std::optional<PolicyState>> states(run.policies.size());
  for (size_t slot = 0; slot < run.policies.size(); ++slot) {
    const PolicySpec& spec = run.policies[slot];
    if (spec.policy_class.kind != policy::PolicyClass::Kind::kCheckpoint) continue;
    absl::StatusOr<PolicyState> state =
        LoadPolicy(spec.policy_class.path, spec.policy_class.source, spec, PolicyPart::kWeights);
    if (!state.ok()) {
      const std::string key = JoinKey(JoinKey("multi_agent.policies", spec.id.value()), "class");
      return absl::Status(state.status().code(),
                          absl::StrCat(run.config.Where(key), ": ", key, ": ", state.status().message()));
    }
    states[slot] = *std::move(state);
  }
  return states;
}

}  // namespace troupe::config
