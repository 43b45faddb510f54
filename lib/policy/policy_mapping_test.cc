#include "lib/policy/policy_mapping.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

TEST(GlobTest, Matches) {
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("agent_*", "agent_10"));
  EXPECT_TRUE(GlobMatches("a?c*e", "abcde"));
  EXPECT_TRUE(GlobMatches("*_0", "team_a_0"));
  EXPECT_TRUE(GlobMatches("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(GlobMatches("agent_?", "agent_10"));
  EXPECT_FALSE(GlobMatches("", "a"));
  EXPECT_FALSE(GlobMatches("a*b", "a"));
}

class RuleMappingTest : public ::testing::Test {
 protected:
  absl::StatusOr<PolicySlot> MapAgent(const PolicyMapping& mapping, int32_t slot, const EpisodeInfo& episode = {}) {
    return mapping.Map(base::AgentId(agents_[static_cast<size_t>(slot)]), base::AgentSlot(slot), episode);
  }

  const std::vector<std::string> agents_ = {"pred_0", "pred_1", "prey_0"};
  const BySlot<PolicyId> policies_ = {PolicyId("hunters"), PolicyId("prey")};
};

TEST_F(RuleMappingTest, FirstMatchingRuleDecides) {
  const std::vector<MappingRule> rules = {
      {"pred_1", {{PolicyId("prey")}}}, {"pred_*", {{PolicyId("hunters")}}}, {"*", {{PolicyId("prey")}}}};
  const auto mapping = MakeRuleMapping(rules, agents_, policies_);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(*MapAgent(**mapping, 0), PolicySlot(0));
  EXPECT_EQ(*MapAgent(**mapping, 1), PolicySlot(1));
  EXPECT_EQ(*MapAgent(**mapping, 2), PolicySlot(1));
}

TEST_F(RuleMappingTest, UnknownPolicyIsNotFound) {
  const std::vector<MappingRule> rules = {{"*", {{PolicyId("huntres")}}}};
  const auto mapping = MakeRuleMapping(rules, agents_, policies_);
  EXPECT_EQ(mapping.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(mapping.status().message().find("huntres"), absl::string_view::npos);
  EXPECT_NE(mapping.status().message().find("hunters, prey"), absl::string_view::npos);
}

TEST_F(RuleMappingTest, AgentWithoutRuleIsAnError) {
  const std::vector<MappingRule> rules = {{"pred_*", {{PolicyId("hunters")}}}};
  const auto mapping = MakeRuleMapping(rules, agents_, policies_);
  EXPECT_EQ(mapping.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(mapping.status().message().find("prey_0"), absl::string_view::npos);
}

// Whoever maps has its own list of agents, and rules may come from elsewhere.
TEST_F(RuleMappingTest, AnAgentThatItWasNotMadeForIsAnError) {
  for (const MappingRule& rule : {MappingRule{"*", {{PolicyId("hunters")}}}, MappingRule{"*", {}, "round_robin"}}) {
    const auto mapping = MakeRuleMapping(absl::MakeConstSpan(&rule, 1), agents_, policies_);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    for (const int32_t slot : {-1, 3, 1 << 30}) {
      const absl::Status status = (*mapping)->Map(base::AgentId("prey_1"), base::AgentSlot(slot), {}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << slot;
      EXPECT_NE(status.message().find(absl::StrCat("got agent slot ", slot, ", expected 0 to 2")), std::string::npos)
          << status;
      EXPECT_FALSE((*mapping)->KnownAhead(base::AgentSlot(slot)));
    }
  }
}

TEST_F(RuleMappingTest, WeightsAreDrawnForEachAgentAndEpisode) {
  const std::vector<MappingRule> rules = {{"pred_*", {{PolicyId("hunters"), 3}, {PolicyId("prey"), 1}}},
                                          {"*", {{PolicyId("prey"), 0.5}}}};
  const auto mapping = MakeRuleMapping(rules, agents_, policies_);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  constexpr int kEpisodes = 20000;
  int hunters = 0, equal = 0;
  for (uint32_t episode = 0; episode < kEpisodes; ++episode) {
    const EpisodeInfo info = {7, base::EnvId(3), episode};
    const PolicySlot first = *MapAgent(**mapping, 0, info);
    EXPECT_EQ(first, *MapAgent(**mapping, 0, info));
    hunters += first == PolicySlot(0) ? 1 : 0;
    equal += first == *MapAgent(**mapping, 1, info) ? 1 : 0;
    EXPECT_EQ(*MapAgent(**mapping, 2, info), PolicySlot(1));
  }
  // Four standard deviations of a binomial distribution: the draws are fixed, so this holds always or never.
  EXPECT_NEAR(hunters, 0.75 * kEpisodes, 4 * 61.2);
  EXPECT_NEAR(equal, 0.625 * kEpisodes, 4 * 68.5);
  int differ = 0;
  for (uint32_t env = 0; env < 100; ++env) {
    const auto mapped = [&](uint64_t seed) { return *MapAgent(**mapping, 0, {seed, base::EnvId(env), 0}); };
    differ += mapped(7) != mapped(8) ? 1 : 0;
  }
  EXPECT_GT(differ, 10) << "another seed draws others";
}

TEST_F(RuleMappingTest, WeightsAreChecked) {
  for (const double weight : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const std::vector<MappingRule> rules = {{"*", {{PolicyId("hunters"), weight}, {PolicyId("prey"), 1}}}};
    EXPECT_EQ(MakeRuleMapping(rules, agents_, policies_).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(MakeRuleMapping(std::vector<MappingRule>{{"*", {}}}, agents_, policies_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::policy
