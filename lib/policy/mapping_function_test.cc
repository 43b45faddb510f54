#include "lib/policy/mapping_function.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

const std::vector<std::string>& Agents() {
  static const auto* const kAgents = new std::vector<std::string>{"left", "right"};
  return *kAgents;
}
const BySlot<PolicyId>& Policies() {
  static const auto* const kPolicies = new BySlot<PolicyId>{PolicyId("a"), PolicyId(""), PolicyId("b"), PolicyId("c")};
  return *kPolicies;
}

std::unique_ptr<PolicyMapping> Make(const std::string& function, std::vector<WeightedPolicy> policies = {}) {
  const std::vector<MappingRule> rules = {{"*", std::move(policies), function}};
  auto mapping = MakeRuleMapping(rules, Agents(), Policies());
  EXPECT_TRUE(mapping.ok()) << mapping.status();
  return mapping.ok() ? *std::move(mapping) : nullptr;
}

absl::StatusOr<PolicySlot> MapLeft(const PolicyMapping& mapping, const EpisodeInfo& episode) {
  return mapping.Map(base::AgentId("left"), base::AgentSlot(0), episode);
}
absl::StatusOr<PolicySlot> MapRight(const PolicyMapping& mapping, const EpisodeInfo& episode) {
  return mapping.Map(base::AgentId("right"), base::AgentSlot(1), episode);
}

EpisodeInfo Episode(uint32_t episode, int32_t worker = 0) {
  EpisodeInfo info;
  info.seed = 5;
  info.env_id = base::EnvId(3);
  info.episode = episode;
  info.worker = worker;
  return info;
}

TEST(MappingFunctionTest, RoundRobinChangesPlaces) {
  const auto all = Make("round_robin");
  std::vector<int32_t> slots;
  for (uint32_t episode = 0; episode < 4; ++episode) {
    slots.push_back(MapLeft(*all, Episode(episode))->value());
    slots.push_back(MapRight(*all, Episode(episode))->value());
  }
  EXPECT_EQ(slots, (std::vector<int32_t>{0, 2, 2, 3, 3, 0, 0, 2})) << "slot 1 is free";
  const auto some = Make("round_robin", {{PolicyId("c")}, {PolicyId("a")}});
  EXPECT_EQ(*MapLeft(*some, Episode(0)), PolicySlot(0)) << "in the order given: environment 3 begins with a";
  EXPECT_EQ(*MapRight(*some, Episode(0)), PolicySlot(3));
}

TEST(MappingFunctionTest, SelfPlayGivesAllAgentsOnePolicy) {
  const auto mapping = Make("self_play");
  std::set<int32_t> drawn;
  for (uint32_t episode = 0; episode < 50; ++episode) {
    const PolicySlot left = *MapLeft(*mapping, Episode(episode));
    EXPECT_EQ(*MapRight(*mapping, Episode(episode)), left);
    drawn.insert(left.value());
  }
  EXPECT_EQ(drawn, (std::set<int32_t>{0, 2, 3}));
}

TEST(MappingFunctionTest, ByWorker) {
  const auto mapping = Make("by_worker");
  EXPECT_EQ(*MapLeft(*mapping, Episode(9, 0)), PolicySlot(0));
  EXPECT_EQ(*MapLeft(*mapping, Episode(9, 1)), PolicySlot(2));
  EXPECT_EQ(*MapLeft(*mapping, Episode(9, 5)), PolicySlot(3));
}

TEST(MappingFunctionTest, WhatRaisesOrIsGarbageSaysWhy) {
  const auto raises = Make("testing/raises");
  EXPECT_EQ(*MapLeft(*raises, Episode(1)), PolicySlot(0));
  EXPECT_EQ(MapLeft(*raises, Episode(0)).status(),
            absl::InternalError("mapping function \"testing/raises\": there is nobody to play"));
  const auto garbage = Make("testing/unknown_policy");
  EXPECT_EQ(MapLeft(*garbage, Episode(0)).status(),
            absl::InvalidArgumentError(
                "mapping function \"testing/unknown_policy\": got policy \"../x\", expected one of a, b, c"));
}

TEST(MappingFunctionTest, RulesDrawSelfPlayIndependently) {
  const PolicyId a("a"), b("b"), c("c"), d("d");
  const std::vector<MappingRule> rules = {{"left", {{a}, {b}}, "self_play"}, {"*", {{c}, {d}}, "self_play"}};
  const auto mapping = MakeRuleMapping(rules, Agents(), {a, b, c, d});
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  std::set<std::pair<int32_t, int32_t>> seen;
  for (uint32_t episode = 0; episode < 64; ++episode) {
    seen.emplace(MapLeft(**mapping, Episode(episode))->value(), MapRight(**mapping, Episode(episode))->value());
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(MappingFunctionTest, UnknownOnesAreRefused) {
  const std::vector<MappingRule> rules = {{"*", {}, "round_robbin"}};
  const auto mapping = MakeRuleMapping(rules, Agents(), Policies());
  EXPECT_EQ(mapping.status(), absl::NotFoundError("policy_mapping: \"*\": there is no mapping function "
                                                  "\"round_robbin\"; the nearest is \"round_robin\""));
  EXPECT_EQ(FindMappingFunction("x").status().message(),
            "there is no mapping function \"x\"; expected one of round_robin, self_play, by_worker");
  const std::vector<MappingRule> unlisted = {{"*", {{PolicyId("")}}, "round_robin"}};
  EXPECT_EQ(MakeRuleMapping(unlisted, Agents(), Policies()).status().code(), absl::StatusCode::kNotFound)
      << "a free slot has an empty id, which nobody may name";
}

/// Writes down what it is asked, and answers with the last of the policies.
class RecordingHost final : public MappingHost {
 public:
  absl::StatusOr<PolicyId> Ask(const HostedQuestion& question) override {
    asked_ = absl::StrCat(std::string(question.function), " ", question.agent_id.value(), " of ",
                          question.policies.size(), ":");
    for (const auto& [agent, policy] : question.mapped) {
      absl::StrAppend(&asked_, " ", std::string(agent), "=", std::string(policy));
    }
    if (question.episode.episode == 9) return absl::UnavailableError("gone");
    return question.policies.back();
  }
  const std::string& asked() const { return asked_; }

 private:
  std::string asked_;
};

TEST(MappingFunctionTest, OneInAnotherProcessIsAskedThere) {
  const auto mapping = Make("python:mine:choose");
  EXPECT_FALSE(mapping->KnownAhead(base::AgentSlot(0)));
  EXPECT_TRUE(Make("round_robin")->KnownAhead(base::AgentSlot(0)));
  EpisodeInfo episode = Episode(1);
  EXPECT_EQ(MapLeft(*mapping, episode).status().code(), absl::StatusCode::kFailedPrecondition)
      << "there is nobody to ask";
  RecordingHost host;
  episode.host = &host;
  const MappedAgent mapped = {base::AgentSlot(0), PolicySlot(2)};
  episode.agents = absl::MakeConstSpan(&mapped, 1);
  EXPECT_EQ(*MapRight(*mapping, episode), PolicySlot(3));
  EXPECT_EQ(host.asked(), "python:mine:choose right of 3: left=b");
  episode.episode = 9;
  EXPECT_EQ(MapRight(*mapping, episode).status(),
            absl::UnavailableError("mapping function \"python:mine:choose\": gone"));
  const std::vector<MappingRule> rules = {{"*", {}, "python:mine"}};
  EXPECT_EQ(MakeRuleMapping(rules, Agents(), Policies()).status(),
            absl::InvalidArgumentError("policy_mapping: \"*\": got \"python:mine\", expected python:MODULE:NAME"));
}

TEST(MappingFunctionTest, APolicyTableCarriesIt) {
  PolicySpec a = SmallSpecForTesting();
  a.id = PolicyId("a");
  PolicySpec b = a;
  b.id = PolicyId("b");
  const auto table =
      PolicyTable::Make({a, b}, {true, true}, {{"left", {{PolicyId("a")}}}, {"*", {}, "round_robin"}}, Agents());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE((*table)->IsMapped(PolicySlot(1))) << "the function may choose any";
  const auto back = PolicyTableFromJson(ToJson(**table));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)->rules()[1].function, "round_robin");
  EXPECT_EQ(*MapRight((*back)->mapping(), Episode(1)), PolicySlot(1));
  // One that is gone is no longer chosen.
  const auto removed = (*table)->Remove(PolicyId("b"));
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*MapRight((*removed)->mapping(), Episode(0)), PolicySlot(0));
}

}  // namespace
}  // namespace troupe::policy
