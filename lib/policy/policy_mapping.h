#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/policy/ids.h"
#include "lib/policy/mapping_host.h"

namespace troupe::policy {

/// An argument of the environment, as text.
struct EnvArgument {
  std::string name;
  std::string value;
};

/// An agent that has its policy for the episode.
struct MappedAgent {
  base::AgentSlot slot;
  PolicySlot policy;
};

/// What `policy_mapping_fn(agent_id, episode, worker)` is told of the episode. Its id is (env_id, episode). Borrowed
/// for the call.
struct EpisodeInfo {
  uint64_t seed = 0;  ///< the run's
  base::EnvId env_id;
  uint32_t episode = 0;
  int32_t worker = 0;                           ///< index of the worker that plays it
  absl::Span<const EnvArgument> env_args = {};  ///< as the configuration has them
  absl::Span<const MappedAgent> agents = {};    ///< mapped so far; none where weights are fetched ahead
  MappingHost* host = nullptr;                  ///< for functions in another process; null: there is none
};

/// Says which policy plays an agent; asked once per agent and episode, at its first observation. Thread-safe.
class PolicyMapping {
 public:
  virtual ~PolicyMapping() = default;
  /// An error costs the episode that asked. Blocks only where KnownAhead says no.
  virtual absl::StatusOr<PolicySlot> Map(const base::AgentId& agent_id, base::AgentSlot agent_slot,
                                         const EpisodeInfo& episode) const = 0;
  /// Whether Map is pure for this agent, so that it may be asked before the episode begins, and again.
  virtual bool KnownAhead(base::AgentSlot /*agent_slot*/) const { return true; }
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
  /// A MappingFunction, or one in Python (IsPythonName), that is asked instead of drawing, and chooses from `policies`
  /// (their weights are nothing to it), or from all of the run where there are none; empty: none.
  std::string function = {};
};

/// Limits of a mapping. A policy's id and a function's name have limits of their own.
inline constexpr size_t kMaxMappingRules = 1024;
inline constexpr size_t kMaxAgentGlobBytes = 256;
inline constexpr size_t kMaxPoliciesOfRule = 1024;

/// The rules against fixed agents and policies, resolved once. An agent slot beyond `agent_ids` maps to
/// INVALID_ARGUMENT. INVALID_ARGUMENT when an agent matches no rule, a rule has neither policy nor function, a weight
/// is not a finite number above 0, or a limit is exceeded; NOT_FOUND when a rule names a policy that is not in
/// `policies` (an empty id there is no policy), or a function that is not registered.
absl::StatusOr<std::unique_ptr<PolicyMapping>> MakeRuleMapping(absl::Span<const MappingRule> rules,
                                                               absl::Span<const std::string> agent_ids,
                                                               const BySlot<PolicyId>& policies);

/// True when `text` matches `glob`.
bool GlobMatches(std::string_view glob, std::string_view text);
/// The rule that decides for the agent, one of `rules`; nullptr: none matches.
const MappingRule* FirstMatch(absl::Span<const MappingRule> rules, std::string_view agent_id);

}  // namespace troupe::policy
