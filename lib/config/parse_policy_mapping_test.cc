#include "lib/config/parse_policy_mapping.h"

#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using policy::MappingRule;
using policy::PolicyId;

TEST(ParsePolicyMappingTest, ReadsRulesInOrder) {
  const auto rules = ParsePolicyMapping("{prey_*: prey, '*': {a: 1, b: 0.5}}", "--mapping", {"prey_0", "wolf"});
  ASSERT_TRUE(rules.ok()) << rules.status();
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ((*rules)[0].agent_glob, "prey_*");
  EXPECT_EQ((*rules)[0].policies[0].policy, PolicyId("prey"));
  ASSERT_EQ((*rules)[1].policies.size(), 2u);
  EXPECT_EQ((*rules)[1].policies[1].policy, PolicyId("b"));
  EXPECT_EQ((*rules)[1].policies[1].weight, 0.5);
}

TEST(ParsePolicyMappingTest, PerAgentIsARuleForEachAgent) {
  const auto rules = ParsePolicyMapping("per_agent", "--mapping", {"x", "y"});
  ASSERT_TRUE(rules.ok()) << rules.status();
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ((*rules)[1].agent_glob, "y");
  EXPECT_EQ((*rules)[1].policies[0].policy, PolicyId("y"));
}

TEST(ParsePolicyMappingTest, AFunctionIsARule) {
  const auto rules = ParsePolicyMapping("{function: round_robin}", "--mapping", {"x"});
  ASSERT_TRUE(rules.ok()) << rules.status();
  ASSERT_EQ(rules->size(), 1u);
  EXPECT_EQ((*rules)[0].agent_glob, "*");
  EXPECT_EQ((*rules)[0].function, "round_robin");
}

TEST(ParsePolicyMappingTest, RefusesWhatIsNoMapping) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "got no rules"},
      {"{}", "got no rules"},
      {"[a]", "policy_mapping"},
      {"{'*': {a: -1}}", "weight"},
      {"{'*': ../x}", "../x"},
      {"{'*': {}}", "an empty mapping"},
      {"{'*': a", "not valid YAML"},
      {"{'*': ''}", "policy_mapping"},
      // Rules that decide for no agent.
      {"{y: a, '*': b}",
       "MAPPING: policy_mapping.y: got a glob that matches no agent, expected one that matches some of"},
      {"{'?': a, x: b}", "MAPPING: policy_mapping.x: got a glob behind \"?\", which takes every agent that it matches"},
  };
  for (const auto& [yaml, expected] : cases) {
    const auto rules = ParsePolicyMapping(yaml, "MAPPING", {"x"});
    ASSERT_EQ(rules.status().code(), absl::StatusCode::kInvalidArgument) << yaml;
    const std::string message(rules.status().message());
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_EQ(message.find("MAPPING"), 0u) << message;
  }
}

}  // namespace
}  // namespace troupe::config
