// Policies that lose rows because the outcome of a decision comes after the decision's batch.

#include "lib/learner/aging_watch.h"

#include <string>
#include <vector>

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
  void Update(int32_t slot, int64_t kept, int64_t lost, bool by_one = true) {
    Assembly assembly;
    if (kept > 0) assembly.trained.push_back({PolicySlot(slot), kept});
    if (lost > 0) assembly.aged.push_back({PolicySlot(slot), lost});
    if (lost > 0 && by_one) assembly.aged_by_one.push_back({PolicySlot(slot), lost});
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
  EXPECT_THAT(*watch_.end(), HasSubstr("Set batch_mode: complete_episodes, or algorithm.max_policy_lag: 1, or a larger "
                                       "algorithm.train_batch_size (4000), or fewer environments (16)"));
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
  for (int i = 0; i < 10; ++i) Update(0, 0, 8, /*by_one=*/i > 0);
  EXPECT_THAT(*watch_.end(), Not(HasSubstr("max_policy_lag"))) << "one of them would be too old all the same";
  LearnerOptions whole;
  whole.complete_episodes = true;
  whole.max_policy_lag = 1;
  AgingWatch other(&whole);
  Assembly assembly;
  assembly.aged = assembly.aged_by_one = {{PolicySlot(0), 8}};
  for (int i = 0; i < 10; ++i) other.Add(assembly, *table_);
  EXPECT_THAT(*other.end(), HasSubstr("Set a larger algorithm.train_batch_size"));
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
