// Networks and numbers of a learner beside actor and critic: spec, layout, text, table.

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include "lib/policy/value_network.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

using testing::HasSubstr;

/// An actor with a target, two critics of the action with targets, a number.
PolicySpec WithRoles() {
  PolicySpec spec = SmallSpecForTesting();
  spec.action_space = *space::Space::Dict({{"a", *space::Space::Box(-1, 1, {2})}, {"b", *space::Space::Discrete(3)}});
  spec.actor.has_target = true;
  NetworkSpec critic = spec.critic();
  critic.inputs = {NetworkInput::kObservation, NetworkInput::kAction};
  critic.has_target = true;
  spec.learner_networks = {critic, critic};
  spec.learner_networks[0].role = "q1";
  spec.learner_networks[1].role = "q2";
  spec.learner_numbers = {{"temperature", -1.5}};
  return spec;
}

TEST(RolesTest, EachHasASectionAndTargetsComeLast) {
  const PolicySpec spec = WithRoles();
  ASSERT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(spec.action_size(), 5);
  EXPECT_EQ(spec.critic().role, "q1") << "whose inputs are those of all";
  EXPECT_EQ(spec.InputSize(spec.critic()), 3 + 5);
  EXPECT_EQ(spec.ActionInputSize(spec.critic()), 5);
  const ParameterLayout layout = ParameterLayout::For(spec);
  std::vector<std::string> trained, others;
  for (const ParameterSection& section : layout.sections()) {
    (section.trained ? trained : others).push_back(section.role);
    EXPECT_EQ(section.acting, section.role == "actor");
  }
  EXPECT_EQ(trained, (std::vector<std::string>{"actor", "q1", "q2", "temperature"}));
  EXPECT_EQ(others, (std::vector<std::string>{"actor.target", "q1.target", "q2.target"}));
  EXPECT_EQ(layout.acting_size(), layout.FindSection("actor")->size);
  EXPECT_EQ(layout.Find("q2.0.weight")->shape, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(layout.Find("temperature.value")->shape, std::vector<int64_t>{1});
  // Laid out alike, so that one moves to the other as a whole.
  for (const char* role : {"actor", "q1"}) {
    const ParameterSection& section = *layout.FindSection(role);
    const ParameterSection& target = *layout.FindSection(std::string(role) + kTargetOf);
    ASSERT_EQ(section.size, target.size);
    for (const ParameterEntry& entry : layout.entries()) {
      if (layout.sections()[entry.section].role != role) continue;
      const ParameterEntry* const same = layout.Find(role + (kTargetOf + entry.name.substr(std::string(role).size())));
      ASSERT_NE(same, nullptr) << entry.name;
      EXPECT_EQ(same->offset - target.offset, entry.offset - section.offset);
    }
  }
}

TEST(RolesTest, ValuesOfActionsAreOfADiscreteSpace) {
  PolicySpec spec = SmallSpecForTesting();
  spec.action_space = *space::Space::MultiDiscrete({3, 2});
  spec.actor.action_values = true;
  spec.mutable_critic()->action_values = true;
  ASSERT_TRUE(spec.Validate().ok()) << spec.Validate();
  EXPECT_EQ(spec.OutputSize(spec.actor), 5);
  EXPECT_EQ(spec.OutputSize(spec.critic()), 5);
  EXPECT_FALSE(ValueNetworkOf(spec).has_value()) << "they are no value of the observation";
  PolicySpec other = spec;
  other.actor.action_values = false;
  EXPECT_EQ(FirstDifference(spec, other),
            "the actor's output is values of actions, expected a distribution; set algorithm.name alike");
  spec.action_space = *space::Space::Box(-1, 1, {2});
  EXPECT_THAT(std::string(spec.Validate().message()), HasSubstr("actor gives values of actions, and the action space"));
}

TEST(RolesTest, TextAndTableHaveThem) {
  const PolicySpec spec = WithRoles();
  PolicySpec joint = spec;
  joint.joint_action_size = 7;
  for (NetworkSpec& network : joint.learner_networks) network.inputs.back() = NetworkInput::kJointAction;
  PolicySpec values = SmallSpecForTesting();
  values.actor.action_values = true;
  values.learner_networks.clear();
  for (const PolicySpec& one : {spec, joint, values}) {
    ASSERT_TRUE(one.Validate().ok()) << one.Validate();
    EXPECT_NE(one.ToString(), SmallSpecForTesting().ToString());
    const PolicyTablePtr table = *PolicyTable::Make({one}, {true}, {{"*", {{PolicyId("p")}}}}, {"a"});
    const absl::StatusOr<PolicyTablePtr> back = PolicyTableFromJson(ToJson(*table));
    ASSERT_TRUE(back.ok()) << back.status();
    const PolicySpec& read = (*back)->Find(PolicySlot(0))->spec;
    EXPECT_EQ(read.ToString(), one.ToString());
    EXPECT_EQ(read.actor, one.actor);
    EXPECT_EQ(read.learner_networks, one.learner_networks);
    EXPECT_EQ(read.learner_numbers, one.learner_numbers);
    EXPECT_EQ(read.joint_action_size, one.joint_action_size);
  }
  const std::vector<std::function<void(PolicySpec*)>> changes = {
      [](PolicySpec* s) { s->actor.has_target = false; },
      [](PolicySpec* s) { s->learner_networks[1].has_target = false; },
      [](PolicySpec* s) { s->learner_networks[1].role = "q3"; },
      [](PolicySpec* s) { s->learner_networks[1].inputs.pop_back(); },
      [](PolicySpec* s) { s->learner_numbers[0].name = "alpha"; },
      [](PolicySpec* s) { s->learner_numbers.clear(); }};
  for (const auto& change : changes) {
    PolicySpec other = spec;
    change(&other);
    EXPECT_NE(ShapeOf(other), ShapeOf(spec)) << &change - changes.data();
  }
}

TEST(RolesTest, WhatDoesNotFitIsRefused) {
  const std::vector<std::pair<std::function<void(PolicySpec*)>, std::string>> cases = {
      {[](PolicySpec* s) { s->learner_networks[0].role = "Q 1"; }, "role \"Q 1\"; expected 1 to 32 letters a to z"},
      {[](PolicySpec* s) { s->learner_networks[0].role = "actor"; }, "and not actor"},
      {[](PolicySpec* s) { s->learner_networks[0].role = std::string(33, 'a'); }, "expected 1 to 32 letters"},
      {[](PolicySpec* s) { s->learner_networks[1].role = "q1"; }, "has two networks of role q1"},
      {[](PolicySpec* s) { s->learner_networks[1].inputs = {NetworkInput::kAction}; },
       "the q2 reads action; expected observation, joint_observation, state or state and observation, then perhaps "
       "agent_id, then perhaps action or joint_action"},
      {[](PolicySpec* s) {
         s->learner_networks[1].inputs = {NetworkInput::kState, NetworkInput::kAction};
         s->state_size = 4;
       },
       "the q2 reads state+action and the q1 observation+action; expected the same but for actions"},
      {[](PolicySpec* s) { s->learner_networks[0].inputs.back() = NetworkInput::kJointAction; },
       "joint_action_size is 0; expected above 0"},
      {[](PolicySpec* s) { s->joint_action_size = 3; }, "joint_action_size is 3; expected 0"},
      {[](PolicySpec* s) { s->learner_numbers[0].name = "q1"; }, "learner number \"q1\" of -1.5"},
      {[](PolicySpec* s) {
         s->learner_numbers.push_back({"temperature", 1});
       },
       "with a name of its own"},
      {[](PolicySpec* s) { s->learner_numbers[0].initial = std::numeric_limits<double>::infinity(); },
       "expected a finite one"},
      {[](PolicySpec* s) {
         for (int i = 0; i < 6; ++i) s->learner_numbers.push_back({"n" + std::to_string(i), 0});
       },
       "2 learner networks and 7 learner numbers; expected at most 8 of both"}};
  for (const auto& [change, expected] : cases) {
    PolicySpec spec = WithRoles();
    change(&spec);
    EXPECT_THAT(std::string(spec.Validate().message()), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace troupe::policy
