#include "lib/learner/learn_groups.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "lib/policy/policy_entry.h"

namespace troupe::learner {

using policy::GroupId;
using policy::LearnGroup;
using policy::PolicySlot;

std::vector<LearnGroup> GroupsOf(const Trainer& trainer, const policy::PolicyTable& table) {
  std::vector<LearnGroup> groups = trainer.Groups();
  if (!groups.empty()) return groups;
  for (const PolicySlot slot : table.entries().ids()) {
    const policy::PolicyEntry* const entry = table.Find(slot);
    if (entry == nullptr || !entry->trains || !entry->spec.policy_class.trainable()) continue;
    GroupId id(entry->spec.id.value());
    const auto same = std::find_if(groups.begin(), groups.end(), [&id](const LearnGroup& one) { return one.id == id; });
    if (same != groups.end()) {
      same->members.push_back(slot);
    } else {
      LearnGroup& group = groups.emplace_back();
      group.id = std::move(id);
      group.members = {slot};
    }
  }
  return groups;
}

policy::GroupOfSlot GroupOfSlots(const std::vector<LearnGroup>& groups, const policy::PolicyTable& table) {
  policy::GroupOfSlot group_of(table.num_slots());
  for (const LearnGroup& group : groups) {
    for (const PolicySlot slot : group.members) {
      if (table.Find(slot) != nullptr) group_of[slot] = group.id;
    }
  }
  return group_of;
}

bool WantsJointSteps(const std::vector<LearnGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const LearnGroup& group) { return group.joint_steps; });
}

}  // namespace troupe::learner
