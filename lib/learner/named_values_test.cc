#include "lib/learner/named_values.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/testing/slots.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

PolicyUpdateReport Report(int32_t slot, int64_t rows, double loss) {
  PolicyUpdateReport report;
  report.policy = policy::PolicySlot(slot);
  report.trained_rows = rows;
  report.train_time_s = 2;
  if (rows > 0) report.metrics = {{"Loss/Policy loss", loss}, {"Policy/Entropy", 2 * loss}};
  return report;
}

/// Policies p0, p1, … in slots 0, 1, …
policy::PolicyTablePtr Table(int policies, std::vector<std::string> agents = {"x", "y"}) {
  std::vector<policy::PolicySpec> specs;
  for (int p = 0; p < policies; ++p) {
    specs.push_back(sample::SimpleSchema().policies[policy::PolicySlot(0)]);
    specs.back().id = policy::PolicyId(absl::StrCat("p", p));
  }
  return *policy::PolicyTable::Make(specs, std::vector<bool>(specs.size(), true), {{"*", {{specs[0].id}}}},
                                    std::move(agents));
}

ProgressRecord Record(const policy::PolicyTablePtr& table, std::vector<PolicyUpdateReport> reports) {
  ProgressRecord record;
  record.table = table;
  record.window = EpisodeStats(table->agent_ids().size(), table->num_slots());
  record.policies = std::make_shared<const std::vector<PolicyUpdateReport>>(std::move(reports));
  return record;
}

std::map<std::string, double> Keys(const std::vector<NamedValue>& values) {
  std::map<std::string, double> keys;
  for (const NamedValue& value : values) {
    const bool once = value.key.empty() || keys.emplace(value.key, value.value).second;
    EXPECT_TRUE(once) << value.key << " is there twice";
  }
  return keys;
}

std::map<std::string, double> Tags(const std::vector<NamedValue>& values) {
  std::map<std::string, double> tags;
  for (const NamedValue& value : values) {
    const bool once = value.tag.empty() || tags.emplace(value.tag, value.value).second;
    EXPECT_TRUE(once) << value.tag << " is there twice";
  }
  return tags;
}

TEST(NamedValuesTest, ReturnsByAgentAndPolicyAndLossesByPolicy) {
  NamedValues names({"x", "y"});
  ProgressRecord record = Record(Table(2), {Report(0, 10, 1.5), Report(1, 0, 0)});
  record.window.Add(10, {1, 4}, policy::SlotsForTesting({0, 1}));
  record.window.Add(10, {3, -4}, policy::SlotsForTesting({0, 1}));
  names.Add(record);
  const std::vector<NamedValue> values = names.TakeLine(record);
  EXPECT_THAT(Keys(values), UnorderedElementsAre(Pair("agent/x/return_mean", 2), Pair("agent/x/return_min", 1),
                                                 Pair("agent/x/return_max", 3), Pair("agent/y/return_mean", 0),
                                                 Pair("agent/y/return_min", -4), Pair("agent/y/return_max", 4),
                                                 Pair("policy/p0/return_mean", 2), Pair("policy/p0/return_min", 1),
                                                 Pair("policy/p0/return_max", 3), Pair("policy/p1/return_mean", 0),
                                                 Pair("policy/p1/return_min", -4), Pair("policy/p1/return_max", 4),
                                                 Pair("policy/p0/Loss/Policy loss", 1.5), Pair("policy/p0/rows", 10)));
  const std::map<std::string, double> tags = Tags(values);
  EXPECT_EQ(tags.at("agent/x/Episode-Rewards"), 2) << "as before there were others";
  EXPECT_EQ(tags.at("policy/p1/Episode-Rewards"), 0);
  EXPECT_EQ(tags.at("policy/p1/Episode-Rewards/Min"), -4);
  EXPECT_EQ(tags.at("policy/p1/Episode-Rewards/Max"), 4);
  EXPECT_EQ(tags.at("policy/p0/Loss/Policy loss"), 1.5);
  EXPECT_EQ(tags.at("policy/p0/Policy/Entropy"), 3);
  EXPECT_EQ(tags.at("policy/p0/Time/train_s"), 2);
}

TEST(NamedValuesTest, OnePolicysLossesAreTheRunsOwn) {
  NamedValues names({"x", "y"});
  ProgressRecord record = Record(Table(1), {Report(0, 10, 1.5)});
  record.window.Add(10, {1, 4}, policy::SlotsForTesting({0, 0}));
  names.Add(record);
  EXPECT_EQ(Keys(names.TakeLine(record)).count("policy/p0/Loss/Policy loss"), 0u);
}

TEST(NamedValuesTest, ALineTellsOfAllThatTrainedSinceTheLastOne) {
  NamedValues names({"x", "y"});
  const policy::PolicyTablePtr table = Table(3);
  names.Add(Record(table, {Report(0, 10, 1), Report(1, 4, 5)}));
  ProgressRecord second = Record(table, {Report(0, 7, 2)});
  names.Add(second);
  EXPECT_THAT(Keys(names.TakeLine(second)),
              UnorderedElementsAre(Pair("policy/p0/Loss/Policy loss", 2), Pair("policy/p0/rows", 17),
                                   Pair("policy/p1/Loss/Policy loss", 5), Pair("policy/p1/rows", 4)));
  const ProgressRecord third = Record(table, {Report(2, 1, 3)});
  names.Add(third);
  EXPECT_THAT(Keys(names.TakeLine(third)),
              UnorderedElementsAre(Pair("policy/p2/Loss/Policy loss", 3), Pair("policy/p2/rows", 1)));
}

TEST(NamedValuesTest, AThousandPoliciesDoNotFloodALine) {
  NamedValues names({"x", "y"});
  std::vector<PolicyUpdateReport> reports;
  for (int32_t p = 0; p < 1000; ++p) reports.push_back(Report(p, 1 + (p * 7) % 1000, p));
  ProgressRecord record = Record(Table(1000), reports);
  for (int32_t p = 0; p < 1000; ++p) record.window.Add(1, {1.0 * p}, policy::SlotsForTesting({p}));
  names.Add(record);
  const std::map<std::string, double> keys = Keys(names.TakeLine(record));
  size_t named = 0;
  for (int32_t p = 0; p < 1000; ++p) {
    const bool is_named = keys.count(absl::StrCat("policy/p", p, "/return_mean")) > 0;
    EXPECT_EQ(is_named, (p * 7) % 1000 >= 900) << "those with most rows";
    EXPECT_EQ(keys.count(absl::StrCat("policy/p", p, "/Loss/Policy loss")), is_named ? 1u : 0u);
    named += is_named ? 1 : 0;
  }
  EXPECT_EQ(named, NamedValues::kMost);
  // Of p = 0 to 999 those with 7 p mod 1000 below 900.
  EXPECT_EQ(keys.at("policies/rest/count"), 900);
  EXPECT_EQ(keys.at("policies/rest/return_min"), 0);
  EXPECT_EQ(keys.at("policies/rest/return_max"), 985) << "986 to 999 have 902 rows and more";
  EXPECT_EQ(keys.at("policies/rest/Loss/Policy loss/min"), 0);
  EXPECT_EQ(keys.at("policies/rest/Loss/Policy loss/max"), 985);
  EXPECT_EQ(keys.at("policies/rest/return_mean"), keys.at("policies/rest/Loss/Policy loss/mean"));
  EXPECT_LT(keys.size(), 600u);
}

TEST(NamedValuesTest, AThousandAgentsDoNotEither) {
  std::vector<std::string> agents;
  for (int i = 0; i < 1000; ++i) agents.push_back(absl::StrCat("a", i));
  NamedValues names(agents);
  ProgressRecord record = Record(Table(1, agents), {});
  std::vector<double> returns(1000, 2.0);
  returns[999] = -1;
  record.window.Add(1, returns, {});
  names.Add(record);
  const std::map<std::string, double> keys = Keys(names.TakeLine(record));
  EXPECT_EQ(keys.count("agent/a99/return_mean"), 1u);
  EXPECT_EQ(keys.count("agent/a100/return_mean"), 0u);
  EXPECT_EQ(keys.at("agents/rest/count"), 900);
  EXPECT_EQ(keys.at("agents/rest/return_min"), -1);
  EXPECT_EQ(keys.at("agents/rest/return_max"), 2);
}

TEST(NamedValuesTest, AFewForPeopleAreThoseThatTrainedMost) {
  NamedValues names({"x", "y"});
  const policy::PolicyTablePtr table = Table(8);
  ProgressRecord record = Record(table, {Report(5, 100, 1), Report(2, 50, 1)});
  for (int32_t p = 0; p < 8; ++p) record.window.Add(1, {1.0 * p}, policy::SlotsForTesting({p}));
  names.Add(record);
  names.TakeLine(record);
  const ReturnsByName few = names.Policies(record.window, *table, 3);
  ASSERT_EQ(few.named.size(), 3u);
  EXPECT_EQ(few.named[0].name, "p0") << "in the order of slots, so that lines stay where they are";
  EXPECT_EQ(few.named[1].name, "p2");
  EXPECT_EQ(few.named[2].name, "p5");
  EXPECT_THAT(few.others, ElementsAre(1, 3, 4, 6, 7));
  EXPECT_EQ(few.rest.min, 1);
  EXPECT_EQ(few.rest.max, 7);
}

TEST(NamedValuesTest, AnotherPolicyInASlotBeginsAnew) {
  NamedValues names({"x", "y"});
  policy::PolicyTablePtr table = Table(2);
  names.Add(Record(table, {Report(1, 1000, 1)}));
  table = *table->Remove(policy::PolicyId("p1"));
  table = *table->Release({policy::PolicySlot(1)});
  policy::PolicySpec spec = sample::SimpleSchema().policies[policy::PolicySlot(0)];
  spec.id = policy::PolicyId("new");
  table = *table->Add(spec, true);
  const ProgressRecord record = Record(table, {Report(1, 3, 1)});
  names.Add(record);
  EXPECT_EQ(Keys(names.TakeLine(record)).at("policy/new/rows"), 3);
}

TEST(NamedValuesTest, RowsOfGroupsAreToldWhereThereAreSeveral) {
  NamedValues names({"x", "y"});
  ProgressRecord record = Record(Table(2), {});
  std::vector<GroupRows> groups = {{policy::GroupId("p0"), 20, 1, 16, 1, 2, 30}};
  record.groups = std::make_shared<const std::vector<GroupRows>>(groups);
  for (const auto& [key, value] : Keys(names.TakeLine(record))) EXPECT_EQ(key.find("group"), std::string::npos) << key;
  groups.push_back({policy::GroupId("p1"), 4, 0, 4, 0, 0, 4});
  record.groups = std::make_shared<const std::vector<GroupRows>>(groups);
  const std::vector<NamedValue> values = names.TakeLine(record);
  EXPECT_EQ(Keys(values).at("group/p0/rows_accepted"), 20);
  EXPECT_EQ(Keys(values).at("group/p0/rows_queued"), 1);
  EXPECT_EQ(Keys(values).at("group/p0/rows_trained"), 16);
  EXPECT_EQ(Keys(values).at("group/p0/rows_aged"), 1);
  EXPECT_EQ(Keys(values).at("group/p0/rows_evicted"), 2);
  EXPECT_EQ(Keys(values).at("group/p0/row_uses"), 30);
  EXPECT_EQ(Tags(values).at("group/p1/Rows/trained"), 4);
  EXPECT_EQ(Keys(values).count("groups/rest/count"), 0u);
}

TEST(NamedValuesTest, OfManyGroupsThoseWithMostRowsHaveNames) {
  NamedValues names({"x", "y"});
  ProgressRecord record = Record(Table(1), {});
  std::vector<GroupRows> groups;
  for (int i = 0; i < 150; ++i) groups.push_back({policy::GroupId(absl::StrCat("g", i)), i, 0, i, 0, 0, 2 * i});
  record.groups = std::make_shared<const std::vector<GroupRows>>(std::move(groups));
  const std::map<std::string, double> keys = Keys(names.TakeLine(record));
  EXPECT_EQ(keys.at("group/g149/rows_trained"), 149);
  EXPECT_EQ(keys.at("group/g50/rows_trained"), 50);
  EXPECT_EQ(keys.count("group/g49/rows_trained"), 0u);
  EXPECT_EQ(keys.at("groups/rest/count"), 50);
  EXPECT_EQ(keys.at("groups/rest/rows_trained"), 49 * 50 / 2);
  EXPECT_EQ(keys.at("groups/rest/row_uses"), 49 * 50);
}

TEST(NamedValuesTest, AnEvaluationIsToldApart) {
  NamedValues names({"x", "y"});
  const policy::PolicyTablePtr table = Table(2);
  EpisodeStats evaluation(2, 2);
  evaluation.Add(5, {1, -1}, policy::SlotsForTesting({0, 1}));
  const std::vector<NamedValue> values = names.OfEvaluation(evaluation, *table);
  EXPECT_EQ(Keys(values).at("evaluation/policy/p1/return_mean"), -1);
  EXPECT_EQ(Keys(values).at("evaluation/agent/x/return_max"), 1);
  EXPECT_EQ(Tags(values).at("Test-Results/x/Episode-Rewards"), 1);
  EXPECT_EQ(Tags(values).at("Test-Results/policy/p1/Episode-Rewards"), -1);
}

}  // namespace
}  // namespace troupe::learner
