#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/policy/ids.h"
#include "proto/troupe/v1/config.pb.h"

/// Settings of a policy: the run's, then multi_agent.policies.<id>, then multi_agent.agents.<glob> of the agent whose
/// own policy it is. What the run says holds for all of them (skrl's MultiAgentCfg.expand).
///
/// The algorithm's name is inherited so, too, and with it what is said beside it: a key that only some algorithms have
/// holds for policies whose name has the same keys. One of another algorithm begins with that algorithm's defaults.
namespace troupe::config {

/// Keys of `algorithm` that hold for the whole run and are overridden by nobody.
const std::vector<std::string>& ImmutableKeys();
bool IsImmutable(std::string_view name);

/// By policy slot. INVALID_ARGUMENT with the place in multi_agent.agents for a glob that matches no agent, an agent
/// that none matches, overrides of an agent that plays several policies, or one that others play, and a key that the
/// algorithm in force has not. `players`: by policy slot, the agents that may play it.
absl::StatusOr<std::vector<SettingsOf>> ResolveSettings(const RunConfig& config, absl::Span<const std::string> agents,
                                                        absl::Span<const policy::PolicyId> policies,
                                                        absl::Span<const std::vector<std::string>> players);

v1::AlgorithmConfig AlgorithmOf(const RunConfig& config, const SettingsOf& of);
v1::ModelConfig ModelOf(const RunConfig& config, const SettingsOf& of);
/// The configuration with what `said` has of `keys`, which are options of the algorithm in force, said of the policy
/// alone. For AlgorithmOf and AlgorithmKey: no policy more or less.
RunConfig WithOwnOptions(const RunConfig& config, const SettingsOf& of, const v1::AlgorithmConfig& said,
                         absl::Span<const std::string> keys);
/// The key that gives the policy its algorithm.<name>: where an error points to.
std::string AlgorithmKey(const RunConfig& config, const SettingsOf& of, const std::string& name);
/// The same of model.<name>.
std::string ModelKey(const RunConfig& config, const SettingsOf& of, const std::string& name);
/// What multi_agent.policies says of a policy; nullptr: nothing.
const v1::PolicyConfig* FindPolicyConfig(const RunConfig& config, const policy::PolicyId& id);

}  // namespace troupe::config
