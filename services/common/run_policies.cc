#include "services/common/run_policies.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/run_config.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"

namespace troupe::services {

void UsePolicies(const policy::PolicyTable& table, config::ResolvedRun* run) {
  run->policies.clear();
  run->learner.trains.clear();
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    if (!entry.has_value() || !entry->active()) continue;
    run->policies.push_back(entry->spec);
    run->learner.trains.push_back(entry->trains);
  }
  run->mapping_rules = table.rules();
  run->schema.policies = run->policies;
}

void SayForeignCode(const std::vector<config::ForeignCode>& code) {
  for (const config::ForeignCode& each : code) {
    std::fprintf(stderr, "troupe: this run executes %s: %s\n", base::LogSafe(each.key).c_str(),
                 base::LogSafe(each.text).c_str());
  }
}

absl::StatusOr<RunCheckpoint> FindRunCheckpoint(const std::string& folder, const std::string& which,
                                                const env::EnvRegistry& registry) {
  RunCheckpoint found;
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, config::RunConfig::FromFile(folder + "/config.yaml"));
  storage::FileSystem& fs = storage::FileSystem::Posix();
  TROUPE_ASSIGN_OR_RETURN(found.checkpoint, storage::FindCheckpoint(fs, folder, which));
  TROUPE_ASSIGN_OR_RETURN(const storage::CheckpointManifest manifest,
                          storage::ReadManifest(fs, found.checkpoint, storage::ManifestPart::kPolicies));
  std::vector<config::ForeignCode> code = config::ForeignCodeOf(config);
  if (manifest.state.table != nullptr) config::AddForeignCode(config::ForeignCodeOf(*manifest.state.table), &code);
  SayForeignCode(code);
  TROUPE_ASSIGN_OR_RETURN(found.run, config::ResolveRun(config, registry));
  if (manifest.state.table != nullptr) UsePolicies(*manifest.state.table, &found.run);
  return found;
}

absl::StatusOr<std::vector<policy::WeightSnapshotPtr>> LoadWeights(const RunCheckpoint& from) {
  const std::vector<policy::PolicySpec>& specs = from.run.policies;
  TROUPE_ASSIGN_OR_RETURN(const std::vector<policy::PolicyState> states,
                          storage::ReadWeights(storage::FileSystem::Posix(), from.checkpoint, specs));
  std::vector<policy::WeightSnapshotPtr> weights(states.size());
  for (size_t slot = 0; slot < states.size(); ++slot) {
    if (!specs[slot].policy_class.has_weights()) continue;
    TROUPE_ASSIGN_OR_RETURN(weights[slot], policy::SnapshotOf(states[slot], specs[slot]));
  }
  return weights;
}

absl::StatusOr<RunPolicies> LoadRunPolicies(const std::string& folder, const std::string& which,
                                            const env::EnvRegistry& registry) {
  TROUPE_ASSIGN_OR_RETURN(RunCheckpoint found, FindRunCheckpoint(folder, which, registry));
  RunPolicies loaded{{std::move(found)}, {}};
  TROUPE_ASSIGN_OR_RETURN(loaded.weights, LoadWeights(loaded));
  return loaded;
}

}  // namespace troupe::services
