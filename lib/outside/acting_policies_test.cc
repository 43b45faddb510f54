#include "lib/outside/acting_policies.h"

#include <functional>
#include <memory>

#include "lib/outside/limits.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::outside {
namespace {

using policy::MappingRule;
using policy::PolicySlot;
using policy::WeightVersion;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr base::AgentSlot kA{0};
constexpr base::AgentSlot kB{1};
constexpr PolicySlot kFirst{0};
constexpr PolicySlot kSecond{1};
constexpr PolicySlot kThird{2};
constexpr PolicySlot kGone[] = {kThird};

env::EnvSpec World() {
  env::EnvSpec spec;
  spec.name = "external";
  for (const char* id : {"a", "b"}) {
    spec.possible_agents.push_back({base::AgentId(id), *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(2)});
  }
  return spec;
}

policy::PolicySpec Spec(const std::string& id) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId(id);
  spec.observation_space = *space::Space::Box(-1, 1, {3});
  spec.action_space = *space::Space::Discrete(2);
  spec.actor.hidden_sizes = {4};
  return spec;
}

policy::WeightSnapshotPtr Weights(const policy::PolicySpec& spec, int64_t n, uint64_t epoch = 1) {
  auto weights = std::make_shared<policy::WeightSnapshot>();
  weights->id = spec.id;
  weights->version = {epoch, n};
  weights->actor.resize(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()));
  return weights;
}

class ActingPoliciesTest : public testing::Test {
 protected:
  /// Of three policies, of which by `rules` some play.
  policy::PolicyTablePtr Table(std::vector<MappingRule> rules) const {
    const auto table = policy::PolicyTable::Make({specs_[0], specs_[1], specs_[2]}, {false, false, false},
                                                 std::move(rules), {"a", "b"});
    EXPECT_TRUE(table.ok()) << table.status();
    return table.value_or(nullptr);
  }
  static MappingRule Rule(const std::string& glob, const std::string& policy) {
    return {glob, {{policy::PolicyId(policy)}}};
  }
  void Set(PolicySlot slot, int64_t n, WeightVersion as_of) {
    acting_.SetWeights(slot, Weights(specs_[static_cast<size_t>(slot.value())], n), as_of);
  }
  std::string Refusal() const {
    const auto now = acting_.Now();
    EXPECT_TRUE(absl::IsFailedPrecondition(now.status())) << now.status();
    return std::string(now.status().message());
  }

  std::vector<policy::PolicySpec> specs_ = {Spec("first"), Spec("second"), Spec("third")};
  const env::EnvSpec world_ = World();
  ActingPolicies acting_{world_};
};

TEST_F(ActingPoliciesTest, HasWhatPlaysOnceAllOfItHasWeights) {
  acting_.Begin(Table({Rule("a", "second"), Rule("*", "first"), Rule("b", "third")}));
  EXPECT_EQ(acting_.number(), 0u);
  Set(kFirst, 5, {1, 5});
  EXPECT_FALSE(acting_.Now()->has_value());
  Set(kThird, 5, {1, 5});
  EXPECT_FALSE(acting_.Now()->has_value()) << "nobody plays it";
  Set(kSecond, 4, {1, 5});
  const auto now = acting_.Now();
  ASSERT_TRUE(now.ok() && now->has_value()) << now.status();
  const ActingPolicies::Players& players = **now;
  EXPECT_EQ(players.number, acting_.number());
  ASSERT_EQ(players.specs.size(), 2u);
  EXPECT_EQ(players.specs[0].id.value(), "first");
  EXPECT_EQ(players.weights[1]->version, (WeightVersion{1, 4}));
  EXPECT_THAT(players.agent_ids, ElementsAre("a", "b"));
  ASSERT_EQ(players.rules.size(), 2u) << "a rule that decides for nobody names policies that are not there";
  EXPECT_EQ(players.rules[1].agent_glob, "*");
}

TEST_F(ActingPoliciesTest, NumbersGrowWithWhatActs) {
  acting_.Begin(Table({Rule("*", "first")}));
  Set(kFirst, 5, {1, 5});
  const uint64_t number = acting_.number();
  EXPECT_NE(number, 0u);
  Set(kFirst, 5, {1, 6});  // an update that left it as it was
  Set(kSecond, 6, {1, 6});
  EXPECT_EQ(acting_.number(), number);
  EXPECT_EQ(acting_.VersionOf(number, kA, kFirst), (WeightVersion{1, 6})) << "they act still";
  Set(kFirst, 7, {1, 7});
  EXPECT_EQ(acting_.number(), number + 1);
  EXPECT_EQ(acting_.VersionOf(number, kA, kFirst), (WeightVersion{1, 6}));
  EXPECT_EQ(acting_.VersionOf(number + 1, kB, kFirst), (WeightVersion{1, 7}));
  EXPECT_EQ(acting_.VersionOf(number + 1, kB, kSecond), std::nullopt) << "it does not play";
}

TEST_F(ActingPoliciesTest, AnotherMappingIsAnotherNumber) {
  acting_.Begin(Table({Rule("*", "first")}));
  Set(kFirst, 5, {1, 5});
  const uint64_t number = acting_.number();
  acting_.SetPolicies(Table({Rule("*", "first")}));
  EXPECT_EQ(acting_.number(), number);
  acting_.SetPolicies(Table({Rule("b", "second"), Rule("*", "first")}));
  EXPECT_EQ(acting_.number(), number + 1);
  EXPECT_FALSE(acting_.Now()->has_value()) << "who plays b has no weights yet";
  Set(kSecond, 5, {1, 5});
  EXPECT_TRUE(acting_.Now()->has_value());
  EXPECT_EQ(acting_.VersionOf(number, kB, kSecond), std::nullopt) << "another policy decided";
  EXPECT_EQ(acting_.VersionOf(number, kA, kFirst), (WeightVersion{1, 5}));
  acting_.SetPolicies(nullptr);  // a learner that begins anew
  EXPECT_EQ((*acting_.Now())->specs.size(), 1u);
}

TEST_F(ActingPoliciesTest, AnotherPlayersWeightsAreNotTheAgents) {
  acting_.Begin(Table({Rule("a", "first"), Rule("b", "second")}));
  Set(kFirst, 5, {1, 5});
  Set(kSecond, 5, {1, 5});
  const uint64_t number = acting_.number();
  acting_.SetPolicies(Table({Rule("a", "second"), Rule("b", "first")}));
  EXPECT_EQ(acting_.VersionOf(number, kB, kSecond), (WeightVersion{1, 5}));
  EXPECT_EQ(acting_.VersionOf(number, kB, kFirst), std::nullopt) << "the other one decided";
}

TEST_F(ActingPoliciesTest, AReplacedPolicyHasNoWeightsYet) {
  const policy::PolicyTablePtr first = Table({Rule("*", "third")});
  acting_.Begin(first);
  Set(kThird, 5, {1, 5});
  const uint64_t number = acting_.number();
  const policy::PolicyTablePtr removed = *(*first->SetMapping({Rule("*", "first")}))->Remove(policy::PolicyId("third"));
  const policy::PolicyTablePtr added = *(*removed->Release(kGone))->Add(Spec("fourth"), false);
  acting_.SetPolicies(*added->SetMapping({Rule("*", "fourth")}));
  EXPECT_FALSE(acting_.Now()->has_value());
  acting_.SetWeights(kThird, Weights(Spec("fourth"), 5), {1, 5});
  EXPECT_EQ((*acting_.Now())->specs[0].id.value(), "fourth");
  EXPECT_EQ(acting_.VersionOf(number, kA, kThird), std::nullopt) << "another policy decided";
}

TEST_F(ActingPoliciesTest, OldNumbersAreForgotten) {
  acting_.Begin(Table({Rule("*", "first")}));
  Set(kFirst, 0, {1, 0});
  const uint64_t first = acting_.number();
  EXPECT_TRUE(acting_.CheckNumber(0).ok()) << "nobody says which";
  EXPECT_TRUE(absl::IsFailedPrecondition(acting_.CheckNumber(first + 1)));
  for (int64_t n = 1; n < static_cast<int64_t>(kWeightsKept); ++n) {
    Set(kFirst, n, {1, n});
    EXPECT_EQ(acting_.number(), first + static_cast<uint64_t>(n));
  }
  EXPECT_EQ(acting_.VersionOf(first, kA, kFirst), (WeightVersion{1, 0}));
  Set(kFirst, 1000, {1, 1000});
  EXPECT_TRUE(acting_.CheckNumber(first).ok()) << "a client that takes its time is no liar";
  EXPECT_EQ(acting_.VersionOf(first, kA, kFirst), std::nullopt);
  EXPECT_EQ(acting_.VersionOf(first + 1, kA, kFirst), (WeightVersion{1, 1}));
}

// Of a hundred policies one number an update, not a hundred.
TEST_F(ActingPoliciesTest, WhatChangesTogetherHasOneNumber) {
  acting_.Begin(Table({Rule("a", "first"), Rule("b", "second")}));
  Set(kFirst, 5, {1, 5});
  Set(kSecond, 5, {1, 5});
  const uint64_t number = acting_.number();
  Set(kFirst, 6, {1, 6});
  Set(kSecond, 6, {1, 6});
  EXPECT_EQ(acting_.VersionOf(number, kB, kSecond), (WeightVersion{1, 5}));
  EXPECT_EQ(acting_.number(), number + 1);
  EXPECT_EQ(acting_.VersionOf(number + 1, kA, kFirst), (WeightVersion{1, 6}));
  Set(kFirst, 7, {1, 7});
  ASSERT_TRUE(acting_.Now().ok()) << "which tells the number";
  Set(kSecond, 7, {1, 7});
  EXPECT_EQ(acting_.number(), number + 3);
}

TEST_F(ActingPoliciesTest, WhoCannotActHereIsTold) {
  acting_.Begin(Table({{"*", {{policy::PolicyId("first")}, {policy::PolicyId("second")}}}}));
  EXPECT_THAT(Refusal(), HasSubstr("who plays agent \"a\" is drawn for each episode (multi_agent.policy_mapping)"));
  Set(kFirst, 5, {1, 5});
  EXPECT_EQ(acting_.number(), 0u) << "of what nobody may act as nothing is kept";
  acting_.Begin(Table({{"*", {}, "round_robin"}}));
  EXPECT_THAT(Refusal(), HasSubstr("is asked of a function"));
  const auto refusal = [&](const std::function<void(policy::PolicySpec*)>& change) {
    specs_[0] = Spec("first");
    change(&specs_[0]);
    acting_.Begin(Table({Rule("*", "first")}));
    return Refusal();
  };
  EXPECT_THAT(refusal([](auto* spec) { spec->policy_class.kind = policy::PolicyClass::Kind::kRandom; }),
              HasSubstr("is of class random, which has no network"));
  EXPECT_THAT(refusal([](auto* spec) { spec->action_space = *space::Space::Box(-1, 1, {1}); }),
              HasSubstr("has continuous actions, which LogActions does not take; ask GetActions"));
  EXPECT_THAT(
      refusal([](auto* spec) { spec->action_space = *space::Space::MultiBinary(80); }),
      HasSubstr("one drawn evenly has the log-probability -55.4518, expected at least -25: LogActions takes -50"));
  EXPECT_THAT(refusal([](auto* spec) { spec->observation_space = *space::Space::Box(-1, 1, {6}); }),
              HasSubstr("plays agent \"a\" in other spaces than the world's"));
  acting_.Begin(absl::FailedPreconditionError("as the door says"));
  EXPECT_EQ(Refusal(), "as the door says");
}

TEST_F(ActingPoliciesTest, APolicyThatSeesNoMasksMayDecideWhatIsForbidden) {
  env::EnvSpec world = World();
  world.possible_agents[1].has_action_mask = true;
  ActingPolicies acting(world);
  acting.Begin(Table({Rule("*", "first")}));
  EXPECT_THAT(std::string(acting.Now().status().message()),
              HasSubstr("does not see the action masks of agent \"b\" (algorithm.use_actions_mask)"));
}

}  // namespace
}  // namespace troupe::outside
