#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_mapping.h"

namespace troupe::policy {

/// What a mapping function is asked: which of `policies` plays this agent in this episode. Borrowed for the call.
struct MappingQuestion {
  const base::AgentId& agent_id;
  base::AgentSlot agent_slot;
  const EpisodeInfo& episode;
  int32_t rule = 0;                          ///< place of the rule that asks, from 0
  int32_t worker = 0;                        ///< index of the worker that plays the episode
  absl::Span<const PolicyId> policies = {};  ///< at least one, in the order of the configuration
};

/// A policy mapping in C++: what `policy_mapping: {function: NAME}` names. Pure: the same answer for the same question,
/// in every process, for it is asked ahead to fetch weights and again when something is wrong; does not block. An
/// error, or an answer that is none of the policies or does not fit the agent's spaces, costs that episode alone.
struct MappingFunction {
  std::string_view name;
  absl::StatusOr<PolicyId> (*map)(const MappingQuestion& question);
};

/// A registered function; NOT_FOUND gives the nearest name, or all:
///   round_robin  the agent in slot s plays policy (environment + episode + s) mod n: policies change places from
///                episode to episode
///   self_play    one policy for all agents of an episode, drawn anew for each, all alike
///   by_worker    policy (worker mod n): every worker samples for a policy of its own
absl::StatusOr<const MappingFunction*> FindMappingFunction(std::string_view name);

/// Whether a rule may name it: a registered function, or one in Python, of which only the form of the name is known.
absl::Status CheckMappingFunction(std::string_view name);

}  // namespace troupe::policy
