#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"

namespace troupe::config {

/// Names that a key's rule may have in `counts` (proto/troupe/v1/config_rules.proto), besides "always".
std::vector<std::string_view> ConditionNames();
/// The words of an error for such a condition.
std::string_view NeedsOf(std::string_view condition);

/// The author of a configuration's file.
enum class FileOf {
  kUser,  ///< the user, for this run
  kRun,   ///< a run that was started before, so that overrides alone are new
};

/// Looks for what was written and has no effect: keys that nothing of the run reads, and entries of
/// multi_agent.policy_mapping and multi_agent.agents that no agent meets first. A key with the value of its default, or
/// of the preset, says nothing and is no mistake.
///
/// INVALID_ARGUMENT for the first mistake, with its place and what would make it count. Warnings are what it is no
/// mistake of this user's: in a run's own file, or in a file beside an override that switches off what would read it.
/// Makes the environment again where env.state_key or env.action_mask_key were written.
absl::StatusOr<std::vector<std::string>> CheckEffects(const ResolvedRun& run, const env::EnvRegistry& registry,
                                                      FileOf file);

}  // namespace troupe::config
