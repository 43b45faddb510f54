#include "lib/learner/stale_rows.h"

#include <memory>
#include <string>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/policy/testing/slots.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

using policy::PolicyId;
using policy::PolicyTablePtr;
using sample::MultiAgentBatch;
using testing::HasSubstr;

/// Two agents of a policy each; fragments as a worker that has revision 0 makes them.
class StaleRowsTest : public testing::Test {
 protected:
  StaleRowsTest() {
    schema_ = sample::SimpleSchema(2, 3);
    schema_.policies.push_back(schema_.policies[policy::PolicySlot(0)]);
    schema_.policies[policy::PolicySlot(1)].id = PolicyId("other");
    options_.policies_of_slot = {{0}, {1}};
    options_.min_episode_steps = options_.max_episode_steps = 4;
    table_ = *policy::PolicyTable::Make(schema_.policies.values(), {true, true},
                                        {{"agent_0", {{PolicyId("shared")}}}, {"agent_1", {{PolicyId("other")}}}},
                                        schema_.agent_ids);
  }

  std::shared_ptr<MultiAgentBatch> Fragment() { return sample::MakeBatch(schema_, options_, 2, 10, {1, 0}); }
  FreshPart LeaveOut(std::shared_ptr<MultiAgentBatch> batch) { return LeaveOutStale(std::move(batch), *table_, 1, {}); }
  /// The policy removed, and what plays instead of it.
  void RemoveOther() { table_ = *(*table_->SetMapping({{"*", {{PolicyId("shared")}}}}))->Remove(PolicyId("other")); }
  absl::Status Validate(const MultiAgentBatch& batch) {
    sample::BatchSchema schema = schema_;
    schema.policies = table_->Specs();
    return sample::ValidateBatch(batch, schema, {});
  }

  sample::BatchSchema schema_;
  sample::FakeRolloutOptions options_;
  PolicyTablePtr table_;
};

TEST_F(StaleRowsTest, WhatIsFreshStaysAsItIs) {
  const auto batch = Fragment();
  EXPECT_EQ(LeaveOut(batch).batch, batch);
  // One that was removed plays on.
  RemoveOther();
  const FreshPart part = LeaveOut(batch);
  EXPECT_EQ(part.batch, batch);
  EXPECT_TRUE(part.stale_rows.empty());
}

TEST_F(StaleRowsTest, RowsOfAReplacedPolicyAreLeftOut) {
  table_ = *table_->Replace(schema_.policies[policy::PolicySlot(1)]);
  const auto batch = Fragment();
  const int64_t rows = batch->policies[1].rows;
  const FreshPart part = LeaveOut(batch);
  ASSERT_EQ(part.batch->policies.size(), 1u);
  EXPECT_EQ(part.batch->policies[0].policy.value(), 0);
  ASSERT_EQ(part.stale_rows.size(), 1u);
  EXPECT_EQ(part.stale_rows[0].policy, policy::PolicySlot(1)) << "it is still there, and they are booked as its";
  EXPECT_EQ(part.stale_rows[0].rows, rows);
  EXPECT_EQ(part.reason, "policy \"other\" was replaced in revision 1");
  EXPECT_EQ(part.batch->num_env_steps, batch->num_env_steps);
  EXPECT_TRUE(Validate(*part.batch).ok()) << Validate(*part.batch);
  ASSERT_FALSE(part.batch->finished.empty());
  for (const auto& finished : part.batch->finished) EXPECT_EQ(finished.policies, policy::SlotsForTesting({0, -1}));
  for (const auto& episode : part.batch->episodes) EXPECT_EQ(episode.agents.size(), 1u);
}

TEST_F(StaleRowsTest, SlotsThatAreFreeOrAnothersAreStaleAndNeverInvalid) {
  RemoveOther();
  table_ = *table_->Release({policy::PolicySlot(1)});
  FreshPart part = LeaveOut(Fragment());
  ASSERT_EQ(part.stale_rows.size(), 1u);
  EXPECT_EQ(part.stale_rows[0].policy, policy::kNoPolicy);
  EXPECT_EQ(part.reason, "the policy of slot 1 was removed");
  EXPECT_TRUE(Validate(*part.batch).ok()) << Validate(*part.batch);

  // The next policy there is of another form.
  policy::PolicySpec next = schema_.policies[policy::PolicySlot(0)];
  next.id = PolicyId("next");
  next.observation_space = *space::Space::Box(-1, 1, {7});
  table_ = *table_->Add(next, true);
  part = LeaveOut(Fragment());
  ASSERT_EQ(part.stale_rows.size(), 1u);
  EXPECT_EQ(part.stale_rows[0].policy, policy::kNoPolicy);
  EXPECT_THAT(part.reason, HasSubstr("belongs to policy \"next\" since revision 4"));
  EXPECT_TRUE(Validate(*part.batch).ok()) << Validate(*part.batch);
  // A worker that knows it means it.
  auto newer = Fragment();
  newer->policies_revision = table_->revision();
  EXPECT_TRUE(LeaveOut(newer).stale_rows.empty());
  EXPECT_FALSE(Validate(*newer).ok()) << "its observations do not fit";
}

TEST_F(StaleRowsTest, RowsOfAnotherLearnerEpochAreStale) {
  const FreshPart part = LeaveOutStale(Fragment(), *table_, 2, {});
  EXPECT_TRUE(part.batch->policies.empty());
  EXPECT_EQ(part.stale_rows.size(), 2u);
  EXPECT_EQ(part.reason, "weights of learner epoch 1, this is epoch 2");
}

TEST_F(StaleRowsTest, SlotsThatNoPolicyCanHaveAreLeftToBeRefused) {
  for (const int32_t slot : {-1, 1024, 1 << 30}) {
    const auto batch = Fragment();
    batch->policies[1].policy = policy::PolicySlot(slot);
    const FreshPart part = LeaveOut(batch);
    EXPECT_TRUE(part.stale_rows.empty()) << slot;
    EXPECT_EQ(Validate(*part.batch).code(), absl::StatusCode::kInvalidArgument) << slot;
  }
}

TEST_F(StaleRowsTest, ColumnsOfAWrongFormAreNotRead) {
  table_ = *table_->Replace(schema_.policies[policy::PolicySlot(1)]);
  const auto batch = Fragment();
  batch->policies[1].rows = int64_t{1} << 60;
  batch->policies[1].agent_mask = {nullptr, tensor::DType::kUint8, int64_t{1} << 60, 1};
  const FreshPart part = LeaveOut(batch);
  ASSERT_EQ(part.stale_rows.size(), 1u);
  EXPECT_EQ(part.stale_rows[0].rows, sample::BatchLimits{}.max_rows_per_policy);
}

TEST_F(StaleRowsTest, RevisionsThatNoWorkerHasAreRefused) {
  const auto batch = Fragment();
  batch->policies_revision = 3;
  batch->oldest_revision = 2;
  EXPECT_TRUE(CheckRevisions(*batch, 3).ok());
  EXPECT_EQ(CheckRevisions(*batch, 2).message(), "policies_revision is 3, expected 0 to 2");
  batch->oldest_revision = 4;
  EXPECT_EQ(CheckRevisions(*batch, 9).message(), "oldest_revision is 4, expected 0 to 3");
  batch->oldest_revision = -1;
  EXPECT_FALSE(CheckRevisions(*batch, 9).ok());
}

}  // namespace
}  // namespace troupe::learner
