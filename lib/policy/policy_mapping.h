#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/ids.h"

namespace troupe::policy {

/// What `policy_mapping_fn(agent_id, episode, worker)` is told of the episode.
struct EpisodeInfo {
  uint64_t seed = 0;
  uint32_t env_id = 0;
  uint32_t episode = 0;
};

/// Says which policy plays an agent; asked once per agent and episode, at its first observation. Thread-safe; never
/// blocks.
class PolicyMapping {
 public:
  virtual ~PolicyMapping() = default;
  virtual PolicySlot Map(std::string_view agent_id, int32_t agent_slot, const EpisodeInfo& episode) const = 0;
};

/// A policy and how likely it is to be drawn, relative to the others of its rule.
struct WeightedPolicy {
  PolicyId policy;
  double weight = 1;
};

/// Rules in order, the first whose glob (`*` any run, `?` one character) matches the agent's id decides. With several
/// policies one is drawn for each agent and episode: from (seed, env id, episode, agent slot) alone (stream kMapping).
struct MappingRule {
  std::string agent_glob;
  std::vector<WeightedPolicy> policies;
};

/// The rules against fixed agents and policies, resolved once. INVALID_ARGUMENT when an agent matches no rule, a rule
/// has no policy, or a weight is not a finite number above 0; NOT_FOUND when a rule names a policy that is not in
/// `policies`.
absl::StatusOr<std::unique_ptr<PolicyMapping>> MakeRuleMapping(absl::Span<const MappingRule> rules,
                                                               absl::Span<const std::string> agent_ids,
                                                               absl::Span<const PolicyId> policies);

/// True when `text` matches `glob`.
bool GlobMatches(std::string_view glob, std::string_view text);

}  // namespace troupe::policy
