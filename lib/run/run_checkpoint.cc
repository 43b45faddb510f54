#include "lib/run/run_checkpoint.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/key_effects.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/run/run_modules.h"
#include "lib/storage/checkpoint_format.h"

namespace troupe::run {

void UsePolicies(const policy::PolicyTable& table, config::ResolvedRun* run) {
  run->policies.clear();
  run->learner.trains.clear();
  for (const std::optional<policy::PolicyEntry>& entry : table.entries()) {
    if (!entry.has_value() || !entry->active()) continue;
    run->policies.push_back(entry->spec);
    run->learner.trains.push_back(entry->trains);
  }
  run->mapping_rules = table.rules();
  run->schema.policies = policy::BySlot<policy::PolicySpec>(run->policies);
}

void SayForeignCode(const std::vector<config::ForeignCode>& code) {
  for (const config::ForeignCode& each : code) {
    std::fprintf(stderr, "troupe: this run executes %s: %s\n", base::LogSafe(each.key).c_str(),
                 base::LogSafe(each.text).c_str());
  }
}

absl::StatusOr<RunCheckpoint> ReadRunCheckpoint(const std::string& folder, const std::string& checkpoint,
                                                const env::EnvRegistry& registry,
                                                const std::vector<std::string>& overrides) {
  RunCheckpoint found;
  found.checkpoint = checkpoint;
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig trained, config::RunConfig::FromRun(folder + "/config.yaml"));
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig asked,
                          config::RunConfig::FromRun(folder + "/config.yaml", overrides));
  std::vector<std::string> changes = asked.EvaluationOverrides();
  changes.insert(changes.end(), overrides.begin(), overrides.end());
  TROUPE_ASSIGN_OR_RETURN(const config::RunConfig config, config::RunConfig::FromRun(folder + "/config.yaml", changes));
  TROUPE_RETURN_IF_ERROR(config::CheckEvaluationConfig(trained, config));
  TROUPE_ASSIGN_OR_RETURN(
      const storage::CheckpointManifest manifest,
      storage::ReadManifest(storage::FileSystem::Posix(), checkpoint, storage::ManifestPart::kPolicies));
  found.env_steps = manifest.state.env_steps;
  std::vector<config::ForeignCode> code = config::ForeignCodeOf(config);
  if (manifest.state.table != nullptr) config::AddForeignCode(config::ForeignCodeOf(*manifest.state.table), &code);
  SayForeignCode(code);
  TROUPE_RETURN_IF_ERROR(ReadRunModules(folder, config, config::ModuleUse::kActing));
  TROUPE_ASSIGN_OR_RETURN(found.run, config::ResolveRun(config, registry));
  if (!overrides.empty()) {
    TROUPE_RETURN_IF_ERROR(config::CheckEffects(found.run, registry, config::FileOf::kRun).status());
  }
  if (manifest.state.table != nullptr) UsePolicies(*manifest.state.table, &found.run);
  return found;
}

}  // namespace troupe::run
