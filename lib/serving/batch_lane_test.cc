#include "lib/serving/batch_lane.h"

#include <vector>

#include <gtest/gtest.h>

namespace troupe::serving {
namespace {

struct Piece final : BatchWork {
  explicit Piece(int64_t num_rows, int64_t num_bytes = 8) : rows_(num_rows), bytes_(num_bytes) {}
  int64_t rows() const override { return rows_; }
  int64_t bytes() const override { return bytes_; }
  int64_t rows_, bytes_;
};

using Batch = std::vector<BatchWork*>;

TEST(BatchLaneTest, WhoComesToAnIdleLaneLeadsIt) {
  BatchBudget budget({});
  BatchLane lane(&budget);
  Piece a(1), b(1), c(1), d(1);
  Batch batch;
  EXPECT_TRUE(*lane.Enter(&a));
  lane.Next(&batch);
  EXPECT_EQ(batch, Batch({&a}));
  EXPECT_FALSE(*lane.Enter(&b)) << "a is being computed";
  EXPECT_FALSE(*lane.Enter(&c));
  EXPECT_EQ(budget.count(), 2);
  lane.Next(&batch);
  EXPECT_EQ(batch, Batch({&b, &c})) << "what has queued meanwhile, in its order";
  lane.Next(&batch);
  EXPECT_TRUE(batch.empty());
  EXPECT_TRUE(*lane.Enter(&d)) << "the leader has left";
  EXPECT_EQ(budget.count(), 1);
}

TEST(BatchLaneTest, WhoHasWorkInHandLeadsAnIdleLaneAtOnce) {
  BatchBudget budget({});
  BatchLane lane(&budget);
  Piece a(1);
  Batch batch;
  EXPECT_TRUE(lane.TryLead());
  EXPECT_FALSE(lane.TryLead());
  EXPECT_FALSE(*lane.Enter(&a)) << "the leader computes its own";
  lane.Next(&batch);
  EXPECT_EQ(batch, Batch({&a}));
  lane.Next(&batch);
  EXPECT_TRUE(batch.empty());
  EXPECT_TRUE(lane.TryLead());
}

TEST(BatchLaneTest, ABatchHasItsRowsAtMostAndOnePieceAtLeast) {
  BatchBudget budget({});
  BatchLane lane(&budget);
  Piece a(1000), b(24), c(1), d(1024), e(2000), f(1);
  for (Piece* piece : {&a, &b, &c, &d, &e, &f}) ASSERT_TRUE(lane.Enter(piece).ok());
  Batch batch;
  for (const Batch& expected : {Batch({&a, &b}), Batch({&c}), Batch({&d}), Batch({&e}), Batch({&f})}) {
    lane.Next(&batch);
    EXPECT_EQ(batch, expected);
  }
}

TEST(BatchLaneTest, WhatIsTakenBackIsInNoBatch) {
  BatchBudget budget({});
  BatchLane lane(&budget);
  Piece a(1), b(1), c(1);
  Batch batch;
  ASSERT_TRUE(*lane.Enter(&a));
  lane.Next(&batch);
  ASSERT_FALSE(*lane.Enter(&b));
  ASSERT_FALSE(*lane.Enter(&c));
  EXPECT_FALSE(lane.Remove(&a)) << "it was taken";
  EXPECT_TRUE(lane.Remove(&b));
  EXPECT_FALSE(lane.Remove(&b));
  EXPECT_EQ(budget.count(), 1);
  lane.Next(&batch);
  EXPECT_EQ(batch, Batch({&c}));
}

TEST(BatchLaneTest, AllLanesHaveOneBudget) {
  BatchBudget budget({.count = 3, .bytes = 100});
  BatchLane lanes[2] = {BatchLane(&budget), BatchLane(&budget)};
  Piece a(1, 60), b(1, 30), c(1, 30), d(1, 10), e(1, 0);
  EXPECT_TRUE(lanes[0].Enter(&a).ok());
  EXPECT_TRUE(lanes[1].Enter(&b).ok());
  const absl::Status refused = lanes[1].Enter(&c).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "queries that wait for their policies are 2 of 90 bytes, expected at most 3 of 100 with this one; ask "
            "again later");
  EXPECT_TRUE(lanes[1].Enter(&d).ok());
  EXPECT_FALSE(lanes[0].Enter(&e).ok()) << "a fourth";
  Batch batch;
  lanes[0].Next(&batch);
  EXPECT_TRUE(lanes[0].Enter(&e).ok());
  lanes[0].Next(&batch);
  lanes[1].Next(&batch);
  EXPECT_EQ(budget.count(), 0);
  Piece huge(1, 1000);
  EXPECT_TRUE(lanes[0].Enter(&huge).ok()) << "one alone is let through";
}

}  // namespace
}  // namespace troupe::serving
