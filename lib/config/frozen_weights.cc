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

absl::StatusOr<PolicyState> Load(const PolicySpec& spec, const env::EnvRegistry& registry) {
  const policy::PolicyClass& wanted = spec.policy_class;
  TROUPE_ASSIGN_OR_RETURN(const std::string directory, FindDirectory(wanted.path));
  TROUPE_ASSIGN_OR_RETURN(const RunConfig config, RunConfig::FromFile(directory + "/config.yaml"));
  TROUPE_ASSIGN_OR_RETURN(const ResolvedRun source, ResolveRun(config, registry));
  const policy::PolicyId& id = wanted.source.value().empty() ? spec.id : wanted.source;
  const auto found = std::find_if(source.policies.begin(), source.policies.end(),
                                  [&id](const PolicySpec& candidate) { return candidate.id == id; });
  const std::string what = absl::StrCat("policy \"", id.value(), "\" of ", base::LogSafe(directory));
  if (found == source.policies.end()) {
    const auto append_id = [](std::string* out, const PolicySpec& candidate) { out->append(candidate.id.value()); };
    return absl::NotFoundError(absl::StrCat(what, " is not there; expected one of ",
                                            absl::StrJoin(source.policies, ", ", append_id),
                                            ", as checkpoint:PATH#ID"));
  }
  if (!found->policy_class.has_weights()) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " is of class ", found->policy_class.ToString(), ", which has no weights"));
  }
  if (const std::string difference = policy::FirstDifference(*found, spec); !difference.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(what, " does not fit: ", difference));
  }
  TROUPE_ASSIGN_OR_RETURN(PolicyState state,
                          storage::ReadPolicyWeights(storage::FileSystem::Posix(), directory, *found));
  state.id = spec.id;
  state.version = {};
  TROUPE_RETURN_IF_ERROR(state.Validate(spec));
  return state;
}

}  // namespace

absl::StatusOr<std::vector<std::optional<PolicyState>>> LoadFrozenWeights(const ResolvedRun& run,
                                                                          const env::EnvRegistry& registry) {
  std::vector<std::optional<PolicyState>> states(run.policies.size());
  for (size_t slot = 0; slot < run.policies.size(); ++slot) {
    const PolicySpec& spec = run.policies[slot];
    if (spec.policy_class.kind != policy::PolicyClass::Kind::kCheckpoint) continue;
    absl::StatusOr<PolicyState> state = Load(spec, registry);
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
