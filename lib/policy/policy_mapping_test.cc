#include "lib/policy/policy_mapping.h"

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
  const std::vector<std::string> agents_ = {"pred_0", "pred_1", "prey_0"};
  const std::vector<PolicyId> policies_ = {PolicyId("hunters"), PolicyId("prey")};
};

TEST_F(RuleMappingTest, FirstMatchingRuleDecides) {
  const std::vector<MappingRule> rules = {
      {"pred_1", PolicyId("prey")}, {"pred_*", PolicyId("hunters")}, {"*", PolicyId("prey")}};
  const auto mapping = MakeRuleMapping(rules, agents_, policies_);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ((*mapping)->Map("pred_0", 0, {}), PolicySlot(0));
  EXPECT_EQ((*mapping)->Map("pred_1", 1, {}), PolicySlot(1));
  EXPECT_EQ((*mapping)->Map("prey_0", 2, {}), PolicySlot(1));
}

TEST_F(RuleMappingTest, UnknownPolicyIsNotFound) {
  const std::vector<MappingRule> rules = {{"*", PolicyId("huntres")}};
  const auto mapping = MakeRuleMapping(rules, agents_, policies_);
  EXPECT_EQ(mapping.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(mapping.status().message().find("huntres"), absl::string_view::npos);
  EXPECT_NE(mapping.status().message().find("hunters, prey"), absl::string_view::npos);
}

TEST_F(RuleMappingTest, AgentWithoutRuleIsAnError) {
  const std::vector<MappingRule> rules = {{"pred_*", PolicyId("hunters")}};
  const auto mapping = MakeRuleMapping(rules, agents_, policies_);
  EXPECT_EQ(mapping.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(mapping.status().message().find("prey_0"), absl::string_view::npos);
}

}  // namespace
}  // namespace troupe::policy
