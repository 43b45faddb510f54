#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/base/strong_id.h"
#include "lib/policy/ids.h"
#include "lib/policy/state_block.h"

namespace troupe::policy {

/// Name of a learn group: that of its policy where it has one, else a name of the form of a PolicyId.
using GroupId = base::StrongId<struct GroupIdTag, std::string>;

/// The policies that one trainer updates together: it is resident, trained, failed and rolled back whole. PPO's groups
/// have one policy each. (Not the environment's agent groups, which are a wrapper.) Plain value.
struct LearnGroup {
  GroupId id;
  std::string algorithm = {};            ///< AlgorithmSpec::name
  std::vector<PolicySlot> members = {};  ///< ascending
  bool joint_steps = false;              ///< it reads TrainBatch::joint

  bool operator==(const LearnGroup& other) const = default;
};

/// Of each policy slot the group that it is in; nullopt: in none.
using GroupOfSlot = BySlot<std::optional<GroupId>>;

/// What a group keeps that belongs to none of its policies: a mixer, its target, a joint optimizer. Plain value.
struct GroupState {
  GroupId id;
  std::vector<StateBlock> blocks = {};

  bool operator==(const GroupState& other) const = default;
};

}  // namespace troupe::policy
