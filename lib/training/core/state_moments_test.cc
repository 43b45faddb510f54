#include "lib/training/core/state_moments.h"

#include <limits>
#include <vector>

#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using Numbers = std::vector<double>;

learner::RowMatrix Rows(const std::vector<float>& values, int64_t columns) {
  return {values.data(), static_cast<int64_t>(values.size()) / columns, columns, columns};
}

// Two agents of 2 and 1 elements, then their bits.
const std::vector<int64_t> kJointSizes = {2, 1};
const std::vector<float> kJoint = {
    1, 10, 100, 1, 1,  // both
    3, 20, 0,   1, 0,  // the first alone
    0, 0,  300, 0, 1,  // the second alone
    9, 90, 900, 1, 1,  // nobody reads it
};

TEST(StateMomentsTest, AbsentAgentsAndBitsAddNothing) {
  const StateNormalizer normalizer(InitialColumnMoments(5), kJointSizes, 5);
  // Rows 0 and 1 read the first one, row 2 the second, row 3 the third; row 4, which is not active, the last.
  const ColumnMoments moments =
      normalizer.MomentsOf(Rows(kJoint, 5), std::vector<int32_t>{0, 0, 1, 2, 3}, std::vector<int32_t>{0, 1, 2, 3});
  EXPECT_EQ(moments.count, (Numbers{2, 2, 2, 0, 0}));
  EXPECT_EQ(moments.mean, (Numbers{2, 15, 200, 0, 0}));
  EXPECT_EQ(moments.variance, (Numbers{1, 25, 10000, 0, 0}));
}

// Or else the order of agents would matter to a critic that attends to them.
TEST(StateMomentsTest, AgentsOfASpaceThatACriticAttendsToHaveTheSameMoments) {
  // Agents of 2, 1 and 2 elements, the first and the last of one space.
  const std::vector<float> joint = {
      1, 10, 7, 5,  30, 1, 1, 1,  //
      3, 20, 0, 0,  0,  1, 0, 0,  //
      0, 0,  9, 11, 60, 0, 1, 1,
  };
  const StateNormalizer normalizer(InitialColumnMoments(8), std::vector<int64_t>{2, 1, 2}, 8,
                                   std::vector<int64_t>{0, 1, 0});
  const ColumnMoments moments =
      normalizer.MomentsOf(Rows(joint, 8), std::vector<int32_t>{0, 1, 2}, std::vector<int32_t>{0, 1, 2});
  EXPECT_EQ(moments.count, (Numbers{4, 4, 2, 4, 4, 0, 0, 0}));
  EXPECT_EQ(moments.mean, (Numbers{5, 30, 8, 5, 30, 0, 0, 0}));
  EXPECT_EQ(moments.variance, (Numbers{14, 350, 1, 14, 350, 0, 0, 0}));
}

TEST(StateMomentsTest, AStateCountsInAllItsColumns) {
  const StateNormalizer normalizer(InitialColumnMoments(5), {}, 5);
  const ColumnMoments moments =
      normalizer.MomentsOf(Rows(kJoint, 5), std::vector<int32_t>{1, 2}, std::vector<int32_t>{0, 1});
  EXPECT_EQ(moments.count, Numbers(5, 2));
  EXPECT_EQ(moments.mean, (Numbers{1.5, 10, 150, 0.5, 0.5}));
}

TEST(StateMomentsTest, NormalizesAgentsThatAreThereAndLeavesBits) {
  // Mean 1, deviation 2; mean 10, deviation 0.5; mean 100, deviation 100.
  const StateNormalizer normalizer({{5, 5, 5, 0, 0}, {1, 10, 100, 0, 0}, {4, 0.25, 10000, 1, 1}}, kJointSizes, 5);
  std::vector<float> row = {3, 11, 0, 1, 0};
  normalizer.Normalize(row.data());
  EXPECT_EQ(row, (std::vector<float>{1, 2, 0, 1, 0})) << "who is absent stays 0, not -1";
  row = {-50, 10, 300, 1, 1};
  normalizer.Normalize(row.data());
  EXPECT_EQ(row, (std::vector<float>{-10, 0, 2, 1, 1})) << "clipped at 10";
  row = {0, 0, 50, 0, 1, 7};
  normalizer.Normalize(row.data());
  EXPECT_EQ(row, (std::vector<float>{0, 0, -0.5, 0, 1, 7})) << "what lies behind the columns stays";
}

TEST(StateMomentsTest, MergesEachColumnByItsOwnCount) {
  const ColumnMoments old = {{4, 0, 10}, {1, 0, 5}, {2, 1, 3}};
  const ColumnMoments batch = {{4, 2, 0}, {3, 6, 0}, {2, 8, 0}};
  const ColumnMoments merged = Merge(old, batch, 100);
  EXPECT_EQ(merged.count, (Numbers{8, 2, 10}));
  EXPECT_EQ(merged.mean, (Numbers{2, 6, 5}));
  EXPECT_EQ(merged.variance, (Numbers{3, 8, 3}));  // 2 + 2 * 2 / 4; what was before any data is gone
  EXPECT_EQ(Merge(old, batch, 1).count, (Numbers{5, 2, 10})) << "old ones count for at most 1";
  EXPECT_DOUBLE_EQ(Merge(old, batch, 1).mean[0], 1 + 2 * 0.8);
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Merge(old, {{1, 1, 1}, {inf, 0, 5}, {0, inf, 0}}, 100).mean, (Numbers{1, 0, 5})) << "stay as they were";
}

TEST(StateMomentsTest, AreBlocksOfAStateWithAPolicyThatNormalizes) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.SetCriticInput(policy::NetworkInput::kState, 3);
  policy::PolicyState state;
  const ColumnMoments moments = {{4, 0, 10}, {1, 0, 5}, {2, 1, 3}};
  SetStateMoments(moments, &state);
  EXPECT_EQ(StateMomentsOf(state), moments);
  std::vector<policy::BlockSpec> known;
  AddStateMomentSpecs(spec, &known);
  EXPECT_TRUE(known.empty());
  spec.normalize_state = true;
  AddStateMomentSpecs(spec, &known);
  EXPECT_TRUE(policy::CheckKnownBlocks("p", state.blocks, known).ok());
  SetStateMoments(InitialColumnMoments(2), &state);
  EXPECT_EQ(std::string(policy::CheckKnownBlocks("p", state.blocks, known).message()),
            "p: block \"state_moments.mean\" is f64 [2], expected f64 [3]");
  SetStateMoments({}, &state);
  EXPECT_TRUE(state.blocks.empty());
  EXPECT_EQ(std::string(policy::CheckKnownBlocks("p", state.blocks, known).message()),
            "p has no block \"state_moments.mean\"; expected f64 [3]");
}

}  // namespace
}  // namespace troupe::training
