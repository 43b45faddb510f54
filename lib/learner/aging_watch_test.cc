// Policies that lose rows because clients decide with weights that are too old.

#include "lib/learner/aging_watch.h"

#include <string>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::PolicySlot;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class AgingWatchTest : public testing::Test {
 protected:
  /// Policies "boss" and "worker", and "old", which does not train.
  static policy::PolicyTablePtr Table() {
    std::vector<policy::PolicySpec> specs(3, sample::SimpleSchema().policies[PolicySlot(0)]);
    const char* const ids[] = {"boss", "worker", "old"};
    for (size_t i = 0; i < specs.size(); ++i) specs[i].id = policy::PolicyId(ids[i]);
    return *policy::PolicyTable::Make(specs, {true, true, false}, {{"*", {{specs[0].id}}}}, {"agent"});
  }
  /// An update in which the policy kept and lost so many rows.
  void Update(int32_t slot, int64_t kept, int64_t lost) {
    Assembly assembly;
    if (kept > 0) assembly.trained.push_back({PolicySlot(slot), kept});
    if (lost > 0) assembly.aged.push_back({PolicySlot(slot), lost});
    watch_.Add(assembly, *table_);
  }

  LearnerOptions options_;
  policy::PolicyTablePtr table_ = Table();
  AgingWatch watch_{&options_};
};

TEST_F(AgingWatchTest, ARunWhoseTrainedPolicyLosesAllRowsInTenUpdatesEnds) {
  for (int i = 0; i < 9; ++i) {
    Update(0, 0, 8);
    Update(1, 512, 0);  // the boss has no rows in it: it does not count
    ASSERT_EQ(watch_.end(), std::nullopt) << i;
  }
  Update(0, 0, 8);
  ASSERT_TRUE(watch_.end().has_value());
  EXPECT_THAT(*watch_.end(),
              HasSubstr("policy \"boss\" trains on nothing: all its 80 rows of 10 updates were dropped"));
  EXPECT_THAT(*watch_.end(),
              HasSubstr("clients decided with older weights than algorithm.max_policy_lag (0) allows. Let "
                        "them take new weights more often, or set algorithm.max_policy_lag: 1"));
}

TEST_F(AgingWatchTest, OneRowThatIsTrainedOnIsEnough) {
  for (int i = 0; i < 100; ++i) Update(0, i % 10 == 9 ? 1 : 0, 8);
  EXPECT_EQ(watch_.end(), std::nullopt);
  EXPECT_THAT(watch_.Losing(), SizeIs(1)) << "but it is named";
}

// A frozen policy, one that nobody plays, and one that is frozen meanwhile.
TEST_F(AgingWatchTest, PoliciesThatDoNotTrainOrDoNotPlayAreLeftAlone) {
  for (int i = 0; i < 30; ++i) Update(2, 0, 8);
  for (int i = 0; i < 30; ++i) Update(1, 512, 0);
  EXPECT_EQ(watch_.end(), std::nullopt);
  EXPECT_THAT(watch_.Losing(), IsEmpty());
  for (int i = 0; i < 9; ++i) Update(0, 0, 8);
  table_ = *table_->SetTrains(policy::PolicyId("boss"), false);
  for (int i = 0; i < 9; ++i) Update(0, 0, 8);
  table_ = *table_->SetTrains(policy::PolicyId("boss"), true);
  for (int i = 0; i < 9; ++i) Update(0, 0, 8);
  EXPECT_EQ(watch_.end(), std::nullopt);
}

TEST_F(AgingWatchTest, APolicyIsNamedBeyondATenthAndOnce) {
  for (int i = 0; i < 10; ++i) Update(1, 90, 10);
  EXPECT_THAT(watch_.Losing(), IsEmpty()) << "a tenth is no more than a tenth";
  for (int i = 0; i < 9; ++i) Update(1, 90, 10);
  Update(1, 90, 11);
  ASSERT_THAT(watch_.Losing(), SizeIs(1));
  EXPECT_THAT(watch_.Losing()[0], HasSubstr("policy \"worker\" lost 101 of its last 1001 rows"));
  EXPECT_EQ(watch_.TakeNews(), watch_.Losing());
  for (int i = 0; i < 10; ++i) Update(1, 50, 50);
  EXPECT_THAT(watch_.Losing(), SizeIs(1));
  EXPECT_THAT(watch_.TakeNews(), IsEmpty()) << "the log has it already";
  for (int i = 0; i < 10; ++i) Update(1, 100, 0);
  EXPECT_THAT(watch_.Losing(), IsEmpty()) << "it keeps its rows again";
}

TEST_F(AgingWatchTest, TheRemedyIsOneThatHelps) {
  options_.max_policy_lag = 1;
  for (int i = 0; i < 10; ++i) Update(0, 0, 8);
  EXPECT_THAT(*watch_.end(), Not(HasSubstr("set algorithm"))) << "it is the largest";
}

TEST_F(AgingWatchTest, ManyPoliciesAreNotAllNamed) {
  std::vector<policy::PolicySpec> specs(8, sample::SimpleSchema().policies[PolicySlot(0)]);
  for (size_t i = 0; i < specs.size(); ++i) specs[i].id = policy::PolicyId("p" + std::to_string(i));
  table_ = *policy::PolicyTable::Make(specs, std::vector<bool>(8, true), {{"*", {{specs[0].id}}}}, {"agent"});
  for (int i = 0; i < 10; ++i) {
    for (int32_t slot = 0; slot < 8; ++slot) Update(slot, 1, 1);
  }
  ASSERT_THAT(watch_.Losing(), SizeIs(AgingWatch::kMostNamed + 1));
  EXPECT_EQ(watch_.Losing().back(), "3 more policies lose rows for this reason");
  EXPECT_THAT(watch_.TakeNews(), SizeIs(8));
}

}  // namespace
}  // namespace troupe::learner
