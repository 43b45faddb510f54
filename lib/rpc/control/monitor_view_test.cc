// What a stranger may read of a run, with a canary in everything that is not for strangers.

#include "lib/rpc/control/monitor_view.h"

#include <set>
#include <string>
#include <vector>

#include "lib/policy/policy_class.h"
#include "lib/policy/testing.h"
#include "lib/rpc/control/monitor_codec.h"
#include "lib/rpc/control/policy_listing.h"
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr char kPlanted[] = "canary-4711";

/// Every text of `message` a canary, every list with one element, every number 7: also in fields that are not there
/// yet.
void Fill(Message* message) {
  const Reflection& reflection = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        field->is_repeated() ? reflection.AddString(message, field, kPlanted)
                             : reflection.SetString(message, field, kPlanted);
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Fill(field->is_repeated() ? reflection.AddMessage(message, field) : reflection.MutableMessage(message, field));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        if (!field->is_repeated()) reflection.SetInt64(message, field, 7);
        break;
      default:
        break;
    }
  }
}

TEST(MonitorViewTest, TextsOfAStatusStayHereUnlessTheyAreNames) {
  v1::StatusReply status;
  Fill(&status);
  ASSERT_EQ(status.workers(0).name(), kPlanted);
  WithholdFromAnybody(&status);
  EXPECT_EQ(status.workers(0).name(), "") << "host and pid";
  EXPECT_EQ(status.state_reason(), "") << "words of an error, with paths";
  EXPECT_EQ(status.queue_budget_bytes(), 0) << "configuration";
  EXPECT_EQ(status.env_steps(), 7);
  EXPECT_EQ(status.workers(0).accepted_rows(), 7);
  EXPECT_EQ(status.rows().trained(), 7);
  // What is left, by name.
  EXPECT_EQ(status.run_name(), kPlanted);
  EXPECT_EQ(status.build_version(), kPlanted);
  EXPECT_EQ(status.state(), kPlanted);
  EXPECT_EQ(status.degraded(0), kPlanted) << "words of our own, without paths";
  EXPECT_EQ(status.policies(0).policy_id(), kPlanted);
  EXPECT_EQ(status.door_size(), 0);
  EXPECT_EQ(status.groups(0).group_id(), kPlanted) << "a policy's name, or the user's";
  status.clear_run_name();
  status.clear_build_version();
  status.clear_state();
  status.clear_degraded();
  status.clear_policies();
  status.clear_groups();
  EXPECT_EQ(status.SerializeAsString().find(kPlanted), std::string::npos) << status.DebugString();
}

policy::PolicyTablePtr TableOfSecrets() {
  std::vector<policy::PolicySpec> specs;
  for (const char* text : {"trained", "random", "scripted:canary-4711", "checkpoint:/home/canary-4711/run#canary-4711",
                           "python:canary_4711:f"}) {
    policy::PolicySpec spec = policy::SmallSpecForTesting();
    spec.id = policy::PolicyId("p" + std::to_string(specs.size()));
    spec.policy_class = *policy::ParsePolicyClass(text);
    specs.push_back(spec);
  }
  std::vector<policy::MappingRule> rules = {{"x", {{policy::PolicyId("p0")}, {policy::PolicyId("p4"), 3}}}};
  policy::MappingRule python;
  python.agent_glob = "*";
  python.function = "python:canary_4711:f";
  rules.push_back(python);
  auto table = policy::PolicyTable::Make(specs, {true, false, false, false, false}, rules, {"x", "y"});
  EXPECT_TRUE(table.ok()) << table.status();
  return *table;
}

TEST(MonitorViewTest, ClassesAndFunctionsAreTheirKindForStrangers) {
  const v1::PoliciesReply listing = ToProto(ListPolicies(*TableOfSecrets(), /*whole=*/false));
  const std::string bytes = listing.SerializeAsString();
  for (const char* canary : {"canary", "4711", "/home"}) EXPECT_EQ(bytes.find(canary), std::string::npos) << canary;
  std::vector<std::string> classes;
  for (const v1::PolicyListing& policy : listing.policies()) classes.push_back(policy.policy_class());
  EXPECT_EQ(classes, (std::vector<std::string>{"trained", "random", "scripted", "checkpoint", "python"}));
  ASSERT_EQ(listing.mapping_size(), 2);
  EXPECT_EQ(listing.mapping(0).function(), "");
  EXPECT_EQ(listing.mapping(0).policies(1).weight(), 3);
  EXPECT_EQ(listing.mapping(1).function(), "python");
  EXPECT_EQ(listing.table_json(), "");
  EXPECT_TRUE(listing.policies(0).plays());
  EXPECT_TRUE(listing.policies(0).trains());
}

TEST(MonitorViewTest, TheWholeListingHasTheTexts) {
  const PolicyListing listing = ListPolicies(*TableOfSecrets(), /*whole=*/true);
  EXPECT_EQ(listing.policies[4].policy_class, "python:canary_4711:f");
  EXPECT_EQ(listing.mapping[1].function, "python:canary_4711:f");
}

}  // namespace
}  // namespace troupe::rpc
