#include "lib/learner/learn_groups.h"

#include <string>
#include <vector>

#include "lib/learner/testing/fake_trainer.h"
#include "lib/policy/policy_entry.h"
#include "lib/sample/testing/batch_maker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::GroupId;
using policy::LearnGroup;
using policy::PolicyId;
using policy::PolicySlot;

/// Policies a, b (not trained), c (frozen), d.
policy::PolicyTablePtr FourPolicies() {
  std::vector<policy::PolicySpec> specs(4, sample::SimpleSchema().policies[PolicySlot(0)]);
  for (size_t p = 0; p < specs.size(); ++p) specs[p].id = PolicyId(std::string(1, static_cast<char>('a' + p)));
  specs[2].policy_class = *policy::ParsePolicyClass("checkpoint:runs/old");
  const auto table =
      policy::PolicyTable::Make(specs, {true, false, false, true}, {{"*", {{specs[0].id}}}}, {"agent_0"});
  EXPECT_TRUE(table.ok()) << table.status();
  return *table;
}

TEST(LearnGroupsTest, EachTrainedPolicyIsAGroupWhereTheTrainerNamesNone) {
  const policy::PolicyTablePtr table = FourPolicies();
  FakeTrainer trainer(table->Specs());
  const std::vector<LearnGroup> groups = GroupsOf(trainer, *table);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0], (LearnGroup{GroupId("a"), "", {PolicySlot(0)}}));
  EXPECT_EQ(groups[1], (LearnGroup{GroupId("d"), "", {PolicySlot(3)}}));
  const policy::GroupOfSlot of = GroupOfSlots(groups, *table);
  EXPECT_EQ(of.values(), (std::vector<std::optional<GroupId>>{GroupId("a"), std::nullopt, std::nullopt, GroupId("d")}));
  EXPECT_FALSE(WantsJointSteps(groups));
}

TEST(LearnGroupsTest, APolicyAndTheOneThatItReplacesAreOneGroup) {
  const policy::PolicyTablePtr table = FourPolicies();
  const auto next = table->Replace(table->Find(PolicySlot(0))->spec);
  ASSERT_TRUE(next.ok()) << next.status();
  FakeTrainer trainer((*next)->Specs());
  const std::vector<LearnGroup> groups = GroupsOf(trainer, **next);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].members, (std::vector<PolicySlot>{PolicySlot(0), PolicySlot(4)}));
}

TEST(LearnGroupsTest, TheTrainersGroupsCountAndMayWantJointSteps) {
  const policy::PolicyTablePtr table = FourPolicies();
  FakeTrainer trainer(table->Specs());
  trainer.KeepGroup({GroupId("team"), "qmix", {PolicySlot(0), PolicySlot(3)}, /*joint_steps=*/true});
  const std::vector<LearnGroup> groups = GroupsOf(trainer, *table);
  ASSERT_EQ(groups.size(), 2u) << "and b, which the trainer could train";
  EXPECT_TRUE(WantsJointSteps(groups));
  const policy::GroupOfSlot of = GroupOfSlots(groups, *table);
  EXPECT_EQ(of.values(),
            (std::vector<std::optional<GroupId>>{GroupId("team"), GroupId("b"), std::nullopt, GroupId("team")}));
}

}  // namespace
}  // namespace troupe::learner
