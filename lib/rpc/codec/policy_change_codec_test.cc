#include "lib/rpc/codec/policy_change_codec.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/transport/limits.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using policy::PolicyId;

/// What is left of a change after the wire.
policy::PolicyChange Crossed(const policy::PolicyChange& change) {
  const auto back = FromProto(ToProto(change));
  EXPECT_TRUE(back.ok()) << back.status();
  return *back;
}

TEST(PolicyChangeCodecTest, AddCrossesWhole) {
  policy::AddPolicy add;
  add.id = PolicyId("b");
  add.like = PolicyId("a");
  add.policy_class = "scripted:beat_last";
  add.copy_of = PolicyId("c");
  add.import_from = "runs/x#y";
  add.trains = false;
  add.replace = true;
  const auto back = std::get<policy::AddPolicy>(Crossed(add));
  EXPECT_EQ(back.id, add.id);
  EXPECT_EQ(back.like, add.like);
  EXPECT_EQ(back.policy_class, add.policy_class);
  EXPECT_EQ(back.copy_of, add.copy_of);
  EXPECT_EQ(back.import_from, add.import_from);
  EXPECT_FALSE(back.trains);
  EXPECT_TRUE(back.replace);

  const auto least = std::get<policy::AddPolicy>(Crossed(policy::AddPolicy{PolicyId("b")}));
  EXPECT_EQ(least.like, PolicyId());
  EXPECT_TRUE(least.trains);
  EXPECT_FALSE(least.replace);
}

TEST(PolicyChangeCodecTest, TheOthersCrossWhole) {
  EXPECT_EQ(std::get<policy::RemovePolicy>(Crossed(policy::RemovePolicy{PolicyId("a")})).id, PolicyId("a"));
  for (const bool trains : {false, true}) {
    const auto back =
        std::get<policy::SetPoliciesTrain>(Crossed(policy::SetPoliciesTrain{{PolicyId("a"), PolicyId("b")}, trains}));
    EXPECT_EQ(back.ids, (std::vector<PolicyId>{PolicyId("a"), PolicyId("b")}));
    EXPECT_EQ(back.trains, trains);
  }
  EXPECT_TRUE(std::get<policy::SetTrainable>(Crossed(policy::SetTrainable{})).ids.empty());
  const auto set = std::get<policy::SetPolicy>(Crossed(policy::SetPolicy{PolicyId("a"), {"k=1", "l=[2, 3]"}}));
  EXPECT_EQ(set.id, PolicyId("a"));
  EXPECT_EQ(set.settings, (std::vector<std::string>{"k=1", "l=[2, 3]"}));
  const auto mapping = std::get<policy::SetMapping>(Crossed(policy::SetMapping{
      {{"x_*", {{PolicyId("a"), 0.25}, {PolicyId("b"), 2}}}, {"*", {{PolicyId("a")}}, "self_play"}}}));
  ASSERT_EQ(mapping.rules.size(), 2u);
  EXPECT_EQ(mapping.rules[0].agent_glob, "x_*");
  ASSERT_EQ(mapping.rules[0].policies.size(), 2u);
  EXPECT_EQ(mapping.rules[0].policies[0].weight, 0.25);
  EXPECT_EQ(mapping.rules[0].function, "");
  EXPECT_EQ(mapping.rules[1].policies[0].policy, PolicyId("a"));
  EXPECT_EQ(mapping.rules[1].function, "self_play");
}

void ExpectRefused(const v1::ChangePoliciesRequest& request, const std::string& text) {
  const auto change = FromProto(request);
  ASSERT_EQ(change.status().code(), absl::StatusCode::kInvalidArgument) << request.ShortDebugString();
  EXPECT_NE(std::string(change.status().message()).find(text), std::string::npos) << change.status();
}

TEST(PolicyChangeCodecTest, RefusesWhatIsNoChange) {
  ExpectRefused(v1::ChangePoliciesRequest(), "no change");
  v1::ChangePoliciesRequest request;
  request.mutable_set_mapping();
  ExpectRefused(request, "no rules");
  request.mutable_set_mapping()->set_per_agent(true);
  ExpectRefused(request, "per_agent");
  request.mutable_set_trainable();
  for (size_t i = 0; i <= policy::PolicyTable::kMaxPolicies; ++i) {
    request.mutable_set_trainable()->add_ids(absl::StrCat("p", i));
  }
  ExpectRefused(request, "1025 policy ids, expected at most 1024");
}

TEST(PolicyChangeCodecTest, SettingsHaveBounds) {
  v1::ChangePoliciesRequest request;
  request.mutable_set()->set_id("a");
  ExpectRefused(request, "settings: got 0, expected 1 to 64");
  for (size_t i = 0; i < policy::PolicyTable::kMaxSettings; ++i) request.mutable_set()->add_settings("k=1");
  EXPECT_TRUE(FromProto(request).ok());
  request.mutable_set()->add_settings("k=1");
  ExpectRefused(request, "settings: got 65, expected 1 to 64");
  request.mutable_set()->clear_settings();
  request.mutable_set()->add_settings(std::string(policy::PolicyTable::kMaxSettingBytes + 1, 'k'));
  ExpectRefused(request, "settings: got 1025 bytes, expected at most 1024");
  request.mutable_set()->set_id("../a");
  ExpectRefused(request, "policy id");
}

// Every text of a change has a bound; ids have one of their own, below.
TEST(PolicyChangeCodecTest, RefusesTextsThatAreTooLong) {
  v1::ChangePoliciesRequest request;
  v1::AddPolicyRequest* const add = request.mutable_add();
  add->set_id("fine");
  add->set_class_(std::string(kMaxPathBytes, 'c'));
  add->set_import_from(std::string(kMaxPathBytes, 'p'));
  EXPECT_TRUE(FromProto(request).ok());
  add->set_class_(std::string(kMaxPathBytes + 1, 'c'));
  ExpectRefused(request, "class: got 4097 bytes, expected at most 4096");
  add->set_class_("ppo");
  add->set_import_from(std::string(kMaxPathBytes + 1, 'p'));
  ExpectRefused(request, "import_from: got 4097 bytes, expected at most 4096");

  v1::PolicyMappingRule* const rule = request.mutable_set_mapping()->add_rules();
  rule->set_agents(std::string(policy::kMaxAgentGlobBytes, 'a'));
  rule->set_function(std::string(kMaxPathBytes, 'f'));
  EXPECT_TRUE(FromProto(request).ok());
  rule->set_agents(std::string(policy::kMaxAgentGlobBytes + 1, 'a'));
  ExpectRefused(request, "policy_mapping: agents: got 257 bytes, expected at most 256");
  rule->set_agents("*");
  rule->set_function(std::string(kMaxPathBytes + 1, 'f'));
  ExpectRefused(request, "policy_mapping: function: got 4097 bytes, expected at most 4096");
  rule->set_function("");
  for (size_t i = 0; i <= policy::PolicyTable::kMaxPolicies; ++i) rule->add_policies()->set_policy("p");
  ExpectRefused(request, "got a rule with 1025 policies, expected at most 1024");
  rule->clear_policies();
  for (size_t i = 0; i < policy::kMaxMappingRules; ++i) request.mutable_set_mapping()->add_rules()->set_agents("*");
  ExpectRefused(request, "got 1025 rules, expected at most 1024");
}

TEST(PolicyChangeCodecTest, RefusesIdsThatAreNone) {
  for (const std::string& id : {std::string("../x"), std::string(), std::string(200, 'p'), std::string("a\nb")}) {
    v1::ChangePoliciesRequest request;
    request.mutable_add()->set_id(id);
    ExpectRefused(request, "policy id");
    request.mutable_remove()->set_id(id);
    ExpectRefused(request, "policy id");
    request.mutable_freeze()->add_ids(id);
    ExpectRefused(request, "policy id");
    request.mutable_set_mapping()->add_rules()->add_policies()->set_policy(id);
    ExpectRefused(request, "policy id");
    if (id.empty()) continue;
    request.mutable_add()->set_id("fine");
    request.mutable_add()->set_copy_of(id);
    ExpectRefused(request, "policy id");
  }
}

}  // namespace
}  // namespace troupe::rpc
