#include "lib/training/core/row_uses.h"

#include <vector>

#include <gtest/gtest.h>

namespace troupe::training {
namespace {

std::vector<int32_t> All(absl::Span<const int32_t> rows) { return std::vector<int32_t>(rows.begin(), rows.end()); }

/// Rows 0 to 2 of a trajectory whose agent is dead in row 2; rows 3 and 4 of one that is left out.
struct FiveRows {
  FiveRows() {
    rows.rows = 5;
    rows.agent_mask = mask;
    rows.segments = {{.first_row = 0, .rows = 3}, {.first_row = 3, .rows = 2}};
    rows.segments[1].trains = false;
  }
  const std::vector<uint8_t> mask = {1, 1, 0, 0, 0};
  learner::PolicyTrainBatch rows;
};

TEST(RowUsesTest, DeadAgentsCountWhereALossIsNotMasked) {
  const FiveRows batch;
  RowUses uses;
  uses.Take(batch.rows, true, true);
  EXPECT_EQ(All(uses.active()), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(All(uses.counted()), (std::vector<int32_t>{0, 1}));
  EXPECT_FALSE(uses.differ());
  EXPECT_FALSE(uses.IsInPolicy(2));
  EXPECT_FALSE(uses.IsInValue(2));

  uses.Take(batch.rows, true, false);
  EXPECT_EQ(All(uses.active()), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(All(uses.counted()), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(All(uses.in_value()), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_TRUE(uses.differ());
  EXPECT_FALSE(uses.IsInPolicy(2));
  EXPECT_TRUE(uses.IsInValue(2));
  EXPECT_FALSE(uses.IsInValue(3)) << "left out";
  EXPECT_FALSE(uses.IsCounted(4));

  uses.Take(batch.rows, false, true);
  EXPECT_EQ(All(uses.counted()), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(All(uses.in_value()), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(uses.IsInPolicy(2));
  EXPECT_FALSE(uses.IsInValue(2));

  uses.Take(batch.rows, false, false);
  EXPECT_EQ(All(uses.counted()), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_FALSE(uses.differ());
  EXPECT_TRUE(uses.IsInPolicy(2));
  EXPECT_FALSE(uses.IsInPolicy(3));
}

TEST(RowUsesTest, WithoutAgentMasksAllRowsCountInBoth) {
  FiveRows batch;
  batch.rows.agent_mask = {};
  RowUses uses;
  uses.Take(batch.rows, false, true);
  EXPECT_EQ(uses.active().size(), 5u);
  EXPECT_EQ(uses.counted().size(), 5u);
  EXPECT_FALSE(uses.differ());
}

}  // namespace
}  // namespace troupe::training
