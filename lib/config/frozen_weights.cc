#include "lib/config/frozen_weights.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/schema.h"
#include "lib/storage/run_folder.h"

namespace troupe::config {
namespace {

using policy::PolicySpec;
using policy::PolicyState;

/// The checkpoint directory that a path means.
absl::StatusOr<std::string> FindDirectory(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path + "/manifest.json", error)) return path;
  if (std::filesystem::exists(path + "/config.yaml", error)) {
    return storage::FindCheckpoint(storage::FileSystem::Posix(), path, "latest");
  }
  return absl::NotFoundError(absl::StrCat("\"", base::LogSafe(path), "\" is neither a checkpoint nor a run folder"));
}

/// The policies of a checkpoint: as its table says, or, in one of a version without, its configuration.
absl::StatusOr<std::vector<PolicySpec>> SpecsIn(const std::string& directory, const env::EnvRegistry& registry) {
  TROUPE_ASSIGN_OR_RETURN(const RunConfig config, RunConfig::FromFile(directory + "/config.yaml"));
  TROUPE_ASSIGN_OR_RETURN(ResolvedRun source, ResolveRun(config, registry));
  const auto manifest = storage::ReadManifest(storage::FileSystem::Posix(), directory);
  // A damaged one is found out when the weights are read.
  if (!manifest.ok() || manifest->state.table == nullptr) return std::move(source.policies);
  std::vector<PolicySpec> specs;
  for (PolicySpec& spec : manifest->state.table->Specs()) {
    if (!spec.id.value().empty()) specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace

absl::StatusOr<PolicyState> LoadPolicy(const std::string& path, const policy::PolicyId& source, const PolicySpec& spec,
                                       PolicyPart part, const env::EnvRegistry& registry) {
  TROUPE_ASSIGN_OR_RETURN(const std::string directory, FindDirectory(path));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<PolicySpec> specs, SpecsIn(directory, registry));
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
    return absl::FailedPreconditionError(
        absl::StrCat(what, " is of class ", found->policy_class.ToString(), ", which has no weights"));
  }
  if (const std::string difference = policy::FirstDifference(*found, spec); !difference.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(what, " does not fit: ", difference));
  }
  storage::FileSystem& fs = storage::FileSystem::Posix();
  TROUPE_ASSIGN_OR_RETURN(PolicyState state, part == PolicyPart::kWeights
                                                 ? storage::ReadPolicyWeights(fs, directory, *found)
                                                 : storage::ReadPolicyState(fs, directory, *found));
  state.id = spec.id;
  state.version = {};
  TROUPE_RETURN_IF_ERROR(state.Validate(spec));
  return state;
}

absl::StatusOr<std::vector<std::optional<PolicyState>>> LoadFrozenWeights(const ResolvedRun& run,
                                                                          const env::EnvRegistry& registry) {
  std::vector<std::optional<PolicyState>> states(run.policies.size());
  for (size_t slot = 0; slot < run.policies.size(); ++slot) {
    const PolicySpec& spec = run.policies[slot];
    if (spec.policy_class.kind != policy::PolicyClass::Kind::kCheckpoint) continue;
    absl::StatusOr<PolicyState> state =
        LoadPolicy(spec.policy_class.path, spec.policy_class.source, spec, PolicyPart::kWeights, registry);
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
