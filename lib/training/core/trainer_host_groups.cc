// The learn groups of a TrainerHost: made at the start, and changed with the table of policies.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/trainer_host.h"

namespace troupe::training {

using policy::PolicySlot;

namespace {

/// FAILED_PRECONDITION unless a state of the form `had` is one of the form `now`, and begins with the same numbers.
absl::Status CheckSameForm(const policy::PolicySpec& spec, const StateForm& had, const StateForm& now) {
  if (!(had == now)) {
    return absl::FailedPreconditionError(absl::StrCat("policy \"", spec.id.value(), "\" has a state of the form \"",
                                                      had.ToString(), "\", and these settings want \"", now.ToString(),
                                                      "\"; they can only be those of a new policy"));
  }
  for (size_t i = 0; i < had.numbers.size(); ++i) {
    if (had.numbers[i].initial == now.numbers[i].initial) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "policy \"", spec.id.value(), "\" began with a ", had.numbers[i].name, " of ", had.numbers[i].initial,
        ", which training has moved since; got ", now.numbers[i].initial, ", expected no other"));
  }
  return absl::OkStatus();
}

}  // namespace

bool TrainerHost::is_trained(PolicySlot slot) const {
  return policies_->CheckSlot(slot).ok() && policies_->spec(slot).policy_class.trainable() &&
         !algorithms_[static_cast<size_t>(slot.value())].name.empty();
}

absl::StatusOr<std::vector<TrainerHost::Group>> TrainerHost::MakeGroups(const Algorithm& algorithm,
                                                                        absl::Span<const GroupMember> members) const {
  std::vector<Group> groups;
  for (std::vector<PolicySlot>& slots : algorithm.Groups(members)) {
    std::sort(slots.begin(), slots.end());
    std::vector<GroupMember> of_group;
    for (const GroupMember& member : members) {
      if (std::binary_search(slots.begin(), slots.end(), member.slot)) of_group.push_back(member);
    }
    Group group;
    // No other group has this policy, so the name is no other's.
    group.told.id = policy::GroupId(of_group.front().spec->id.value());
    group.told.algorithm = std::string(algorithm.name());
    group.told.members = std::move(slots);
    group.told.joint_steps = algorithm.reads_joint_steps(*of_group.front().algorithm);
    group.feed = algorithm.Feed(*of_group.front().algorithm);
    absl::StatusOr<std::unique_ptr<GroupTrainer>> trainer = algorithm.MakeGroup(of_group, context_);
    if (!trainer.ok()) {
      return absl::Status(trainer.status().code(),
                          absl::StrCat("learn group \"", group.told.id.value(), "\": ", trainer.status().message()));
    }
    group.trainer = *std::move(trainer);
    groups.push_back(std::move(group));
  }
  return groups;
}

absl::Status TrainerHost::MakeAllGroups(int64_t capacity) {
  std::map<std::string, std::vector<GroupMember>> members;  // by algorithm
  for (size_t i = 0; i < policies_->size(); ++i) {
    const PolicySlot slot(static_cast<int32_t>(i));
    if (is_trained(slot)) members[algorithms_[i].name].push_back({slot, &policies_->spec(slot), &algorithms_[i]});
  }
  for (const auto& [name, of_algorithm] : members) {
    TROUPE_ASSIGN_OR_RETURN(const Algorithm* algorithm, find_(name));
    TROUPE_ASSIGN_OR_RETURN(std::vector<Group> groups, MakeGroups(*algorithm, of_algorithm));
    for (Group& group : groups) {
      const auto size = static_cast<int64_t>(group.told.members.size());
      if (size > capacity) {
        return absl::InvalidArgumentError(absl::StrCat(
            "multi_agent.policy_map_capacity is ", capacity, "; expected at least ", size,
            ": the policies of learn group \"", group.told.id.value(), "\" (",
            absl::StrJoin(
                group.told.members, ", ",
                [this](std::string* out, PolicySlot slot) { absl::StrAppend(out, policies_->spec(slot).id.value()); }),
            ") are trained together by ", group.told.algorithm));
      }
      Keep(std::move(group));
    }
  }
  return absl::OkStatus();
}

void TrainerHost::Keep(Group group) {
  const int32_t first = group.told.members.front().value();
  for (const PolicySlot member : group.told.members) group_of_[static_cast<size_t>(member.value())] = first;
  groups_.insert_or_assign(first, std::move(group));
}

TrainerHost::Group* TrainerHost::GroupOf(PolicySlot slot) {
  const int32_t first = group_of_[static_cast<size_t>(slot.value())];
  return first < 0 ? nullptr : &groups_.at(first);
}

absl::Status TrainerHost::CheckAlone(PolicySlot slot, std::string_view doing) {
  const Group* group = GroupOf(slot);
  if (group == nullptr || group->told.members.size() == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(std::string(doing), ": policy \"", policies_->spec(slot).id.value(),
                                                    "\" is of learn group \"", group->told.id.value(), "\", whose ",
                                                    group->told.members.size(), " policies ", group->told.algorithm,
                                                    " trains together; expected a policy that learns by itself"));
}

absl::Status TrainerHost::AddPolicy(PolicySlot slot, const policy::PolicySpec& spec, policy::PolicyState state,
                                    PolicySlot like) {
  TROUPE_RETURN_IF_ERROR(policies_->CheckSlot(like));
  TROUPE_RETURN_IF_ERROR(CheckAlone(like, absl::StrCat("cannot add policy \"", spec.id.value(), "\" like it")));
  const policy::AlgorithmSpec algorithm = algorithms_[static_cast<size_t>(like.value())];
  const StateForm form = policies_->form(like);
  std::vector<Group> groups;
  if (spec.policy_class.trainable() && !algorithm.name.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const Algorithm* found, find_(algorithm.name));
    const GroupMember member{slot, &spec, &algorithm};
    TROUPE_ASSIGN_OR_RETURN(groups, MakeGroups(*found, absl::MakeConstSpan(&member, 1)));
  }
  TROUPE_RETURN_IF_ERROR(policies_->Add(slot, spec, form, std::move(state)));
  algorithms_.resize(policies_->size());
  group_of_.resize(policies_->size(), -1);
  algorithms_[static_cast<size_t>(slot.value())] = algorithm;
  for (Group& group : groups) {
    group.now = GroupOf(like)->now;
    Keep(std::move(group));
  }
  return absl::OkStatus();
}

absl::Status TrainerHost::SetAlgorithm(PolicySlot slot, const policy::AlgorithmSpec& algorithm) {
  TROUPE_RETURN_IF_ERROR(policies_->CheckSlot(slot));
  TROUPE_RETURN_IF_ERROR(CheckAlone(slot, "cannot set how a policy trains"));
  Group* const before = GroupOf(slot);
  const policy::PolicySpec& spec = policies_->spec(slot);
  if (before == nullptr || before->told.algorithm != algorithm.name) {
    return absl::FailedPreconditionError(absl::StrCat("policy \"", spec.id.value(), "\" is trained by ",
                                                      before == nullptr ? "nobody" : before->told.algorithm,
                                                      ", got options of ", algorithm.name));
  }
  TROUPE_ASSIGN_OR_RETURN(const Algorithm* found, find_(algorithm.name));
  TROUPE_ASSIGN_OR_RETURN(const StateForm form, found->FormOf(algorithm));
  TROUPE_RETURN_IF_ERROR(CheckSameForm(spec, policies_->form(slot), form));
  const GroupMember member{slot, &spec, &algorithm};
  TROUPE_ASSIGN_OR_RETURN(std::vector<Group> groups, MakeGroups(*found, absl::MakeConstSpan(&member, 1)));
  groups.front().trainer->Follow(*before->trainer);
  groups.front().now = before->now;
  algorithms_[static_cast<size_t>(slot.value())] = algorithm;
  Keep(std::move(groups.front()));
  return absl::OkStatus();
}

absl::Status TrainerHost::RemovePolicy(PolicySlot slot) {
  TROUPE_RETURN_IF_ERROR(policies_->CheckSlot(slot));
  TROUPE_RETURN_IF_ERROR(CheckAlone(slot, "cannot remove a policy"));
  TROUPE_RETURN_IF_ERROR(policies_->Remove(slot));
  groups_.erase(slot.value());
  group_of_[static_cast<size_t>(slot.value())] = -1;
  algorithms_[static_cast<size_t>(slot.value())] = {};
  return absl::OkStatus();
}

std::vector<policy::LearnGroup> TrainerHost::Groups() const {
  std::vector<policy::LearnGroup> groups;
  for (const auto& [_, group] : groups_) groups.push_back(group.told);
  return groups;
}

std::vector<learner::FeedSpec> TrainerHost::Feeds() const {
  std::map<std::string, learner::FeedSpec> feeds;
  for (const auto& [_, group] : groups_) {
    if (group.feed.has_value())
      feeds.try_emplace(group.feed->name, *group.feed).first->second.groups.insert(group.told.id);
  }
  std::vector<learner::FeedSpec> all;
  for (auto& [_, feed] : feeds) all.push_back(std::move(feed));
  return all;
}

absl::StatusOr<std::vector<policy::GroupState>> TrainerHost::ExportGroups() {
  std::vector<policy::GroupState> states;
  for (const auto& [_, group] : groups_) {
    std::vector<policy::StateBlock> blocks = group.trainer->Export();
    if (!blocks.empty()) states.push_back({group.told.id, std::move(blocks)});
  }
  return states;
}

absl::Status TrainerHost::ImportGroup(const policy::GroupState& state) {
  for (const auto& [_, group] : groups_) {
    if (group.told.id != state.id) continue;
    const absl::Status imported = group.trainer->Import(state.blocks);
    if (imported.ok()) return imported;
    return absl::Status(imported.code(), absl::StrCat("learn group \"", state.id.value(), "\" (", group.told.algorithm,
                                                      "): ", imported.message()));
  }
  return absl::NotFoundError(absl::StrCat("there is no learn group \"", state.id.value(), "\"; expected one of ",
                                          absl::StrJoin(Groups(), ", ", [](std::string* out, const auto& group) {
                                            absl::StrAppend(out, group.id.value());
                                          })));
}

}  // namespace troupe::training
