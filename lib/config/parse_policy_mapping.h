#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/policy_mapping.h"

namespace troupe::v1 {
class PolicyMapping;
}

namespace troupe::config {

/// The rules of a mapping that is none per agent.
std::vector<policy::MappingRule> MappingRules(const v1::PolicyMapping& mapping);

/// Why the glob at `place` of a list decides for none of `agents`, of whom each takes the first that matches; empty: it
/// decides for one.
std::string WhyNoAgentMeets(absl::Span<const std::string> globs, size_t place, absl::Span<const std::string> agents);

/// A policy_mapping as multi_agent.policy_mapping has it, in YAML, on its own: for a run that is under way. per_agent
/// gives a rule for each of `agent_ids`. `source` stands for the file's name in errors, which are INVALID_ARGUMENT and
/// those of the key, or name a rule that decides for no agent. Whether the policies are there is not looked at.
absl::StatusOr<std::vector<policy::MappingRule>> ParsePolicyMapping(std::string_view yaml, std::string_view source,
                                                                    absl::Span<const std::string> agent_ids);

}  // namespace troupe::config
