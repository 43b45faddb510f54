#include "services/common/run_policies.h"

#include <utility>

#include "lib/base/status_macros.h"
#include "lib/config/run_config.h"
#include "lib/storage/run_folder.h"

namespace troupe::services {

absl::StatusOr<RunPolicies> LoadRunPolicies(const std::string& folder, const std::string& which,
                                            const env::EnvRegistry& registry) {
  RunPolicies loaded;
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, config::RunConfig::FromFile(folder + "/config.yaml"));
  TROUPE_ASSIGN_OR_RETURN(loaded.run, config::ResolveRun(config, registry));
  storage::FileSystem& fs = storage::FileSystem::Posix();
  TROUPE_ASSIGN_OR_RETURN(loaded.checkpoint, storage::FindCheckpoint(fs, folder, which));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<policy::PolicyState> states,
                          storage::ReadWeights(fs, loaded.checkpoint, loaded.run.policies));
  for (size_t slot = 0; slot < states.size(); ++slot) {
    const policy::PolicySpec& spec = loaded.run.policies[slot];
    loaded.weights.emplace_back();
    if (!spec.policy_class.has_weights()) continue;
    TROUPE_ASSIGN_OR_RETURN(loaded.weights.back(), policy::SnapshotOf(states[slot], spec));
  }
  return loaded;
}

}  // namespace troupe::services
