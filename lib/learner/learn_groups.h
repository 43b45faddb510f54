#pragma once

#include <vector>

#include "lib/learner/trainer.h"
#include "lib/policy/learn_group.h"
#include "lib/policy/policy_table.h"

namespace troupe::learner {

/// The learn groups of a run: the trainer's; where it names none, one for each policy of `table` that is trained, with
/// the policy's id. (Of two policies of one id, of which one was replaced, both are in the group.)
std::vector<policy::LearnGroup> GroupsOf(const Trainer& trainer, const policy::PolicyTable& table);

/// Of each slot of `table` the group that its policy is in; nullopt: in none, or the slot is free.
policy::GroupOfSlot GroupOfSlots(const std::vector<policy::LearnGroup>& groups, const policy::PolicyTable& table);

/// Whether some group reads TrainBatch::joint.
bool WantsJointSteps(const std::vector<policy::LearnGroup>& groups);

}  // namespace troupe::learner
