#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// Agents that act as one: what RLlib's `with_agent_groups` makes of them.
struct AgentGroup {
  std::string name;                 ///< the id of the one agent that stands for all
  std::vector<std::string> agents;  ///< ids, in the order of the Tuples; at least one
  space::Space observation_space;   ///< optional: a Tuple with elements as large as the members' spaces
  space::Space action_space;        ///< optional: a Tuple with elements that hold the same actions
};

/// `env` with one agent in place of each group, where its first member stood; other agents stay.
///
/// Spaces are Tuples in the order of `agents`. A group's reward is the sum of its members' rewards of a step; those are
/// in info columns `individual_rewards/AGENT`, given for the group in every step in which it acted or was rewarded.
/// The members' own infos become the group's. Action masks follow one after another. A group's row counts in losses
/// (agent mask) unless no member's does. A state of kPerAgent is as many agents' states as the largest group has
/// members, in their order, then zeros.
///
/// All members of a group that are not done must be ready at the same time: otherwise the episode ends with an INTERNAL
/// error that names group, agents and step. A group is done when all of its members are, terminated when all of them
/// terminated and truncated otherwise. A member that is done before the others is inactive: zeros stand for what it
/// observes, its mask allows the first value alone, and its part of an action goes nowhere.
///
/// INVALID_ARGUMENT: a group without members, an unknown agent, one that is there twice or in two groups, spaces that
/// do not fit, an action mask for some of a group's members only, and what EnvSpec::Validate refuses.
absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithAgentGroups(std::unique_ptr<MultiAgentEnv> env,
                                                               std::vector<AgentGroup> groups);

}  // namespace troupe::env
