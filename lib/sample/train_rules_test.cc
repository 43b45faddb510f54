#include "lib/sample/train_rules.h"

#include <gtest/gtest.h>

namespace troupe::sample {
namespace {

using policy::PolicyId;
using policy::PolicySlot;

/// main, two exploiters (the second came later), an old copy.
PoliciesOfRun League() {
  return PoliciesOfRun(
      {{PolicyId("main")}, {PolicyId("exploiter_a")}, {PolicyId("exploiter_b"), 3}, {PolicyId("old")}});
}

TrainRules Make(std::vector<TrainRule> rules, PoliciesOfRun policies = League()) {
  absl::StatusOr<TrainRules> made = TrainRules::Make(std::move(rules));
  EXPECT_TRUE(made.ok()) << made.status();
  made->Bind(std::move(policies));
  return *std::move(made);
}

/// Whether agent 0 is trained, played by `own` against `other` in agent 1.
bool Trains(const TrainRules& rules, int32_t own, int32_t other) {
  const std::vector<AgentEntry> agents = {{base::AgentSlot(0), PolicySlot(own)},
                                          {base::AgentSlot(1), PolicySlot(other)}};
  return rules.Trains({PolicySlot(own), base::AgentSlot(0), base::EnvId(7), 9, agents});
}

TEST(TrainRulesTest, WithoutRulesEverythingTrains) {
  const TrainRules rules = Make({});
  EXPECT_TRUE(rules.empty());
  EXPECT_TRUE(Trains(rules, 0, 1));
}

TEST(TrainRulesTest, OneRuleThatHoldsIsEnough) {
  // What a league wants: main learns from everybody, exploiters from main alone.
  const TrainRules rules = Make({{.policies = {"main"}}, {.policies = {"exploiter_*"}, .only_against = {"main"}}});
  EXPECT_TRUE(Trains(rules, 0, 0));
  EXPECT_TRUE(Trains(rules, 0, 3));
  EXPECT_TRUE(Trains(rules, 1, 0));
  EXPECT_FALSE(Trains(rules, 1, 2));
  EXPECT_FALSE(Trains(rules, 1, 3));
  EXPECT_FALSE(Trains(rules, 3, 0));
}

TEST(TrainRulesTest, OnlyAgainstMeansAnotherAgent) {
  const TrainRules rules = Make({{.only_against = {"main", "ol?"}}});
  EXPECT_TRUE(Trains(rules, 0, 0)) << "the other agent is played by main, too";
  EXPECT_FALSE(Trains(rules, 0, 1)) << "main itself is no opponent";
  EXPECT_TRUE(Trains(rules, 1, 3));
  // Alone in the episode, so far.
  const std::vector<AgentEntry> alone = {{base::AgentSlot(0), PolicySlot(0)}};
  EXPECT_FALSE(rules.Trains({PolicySlot(0), base::AgentSlot(0), base::EnvId(0), 0, alone}));
}

TEST(TrainRulesTest, TheNewestAreTheLastToCome) {
  const TrainRules one = Make({{.only_newest = 1}});
  EXPECT_TRUE(Trains(one, 2, 0));
  EXPECT_FALSE(Trains(one, 3, 0));
  const TrainRules two = Make({{.only_newest = 2}});
  EXPECT_TRUE(Trains(two, 3, 0)) << "of those that came together, the one of the highest slot";
  EXPECT_FALSE(Trains(two, 1, 0));
  const TrainRules named = Make({{.policies = {"main", "exploiter_a"}, .only_newest = 1}});
  EXPECT_TRUE(Trains(named, 1, 0));
  EXPECT_FALSE(Trains(named, 2, 0));
  // Bound again: a newer one came, and one left.
  TrainRules rules = Make({{.only_newest = 1}});
  PoliciesOfRun policies = League();
  policies.push_back({PolicyId("latest"), 9});
  rules.Bind(policies);
  EXPECT_FALSE(Trains(rules, 2, 0));
  EXPECT_TRUE(Trains(rules, 4, 0));
  policies[PolicySlot(4)].plays = false;
  rules.Bind(policies);
  EXPECT_TRUE(Trains(rules, 2, 0));
  EXPECT_FALSE(Trains(rules, 4, 0));
}

TEST(TrainRulesTest, RegisteredPredicates) {
  const TrainRules others = Make({{.function = "against_others"}});
  EXPECT_TRUE(Trains(others, 0, 1));
  EXPECT_FALSE(Trains(others, 0, 0));
  const TrainRules self = Make({{.function = "self_play"}});
  EXPECT_FALSE(Trains(self, 0, 1));
  EXPECT_TRUE(Trains(self, 0, 0));
  // All conditions of a rule.
  const TrainRules both = Make({{.only_against = {"main"}, .function = "against_others"}});
  EXPECT_TRUE(Trains(both, 1, 0));
  EXPECT_FALSE(Trains(both, 0, 0));
  const auto unknown = TrainRules::Make({{.function = "self_pley"}});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.status().message(), "there is no predicate \"self_pley\"; the nearest is \"self_play\"");
}

}  // namespace
}  // namespace troupe::sample
