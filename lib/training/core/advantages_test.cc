#include "lib/training/core/advantages.h"

#include <cmath>
#include <vector>

#include "lib/sample/multi_agent_batch.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr double kGamma = 0.5;
constexpr double kLambda = 0.5;

// Worked by hand. Segment one terminates, segment two was truncated and is worth 8 after its last row.
//   delta = r + gamma V' - V;  A = delta + 0.25 A'
const std::vector<learner::TrainSegment> kSegments = {{.first_row = 0, .rows = 3, .final_row = -1},
                                                      {.first_row = 3, .rows = 2, .final_row = 0}};
const std::vector<float> kRewards = {1, 2, 3, 1, 0};
const std::vector<float> kValues = {2, 4, 6, 2, 4};
const std::vector<float> kFinalValues = {8};

TEST(AdvantagesTest, GaeByHand) {
  // Row 2: delta = 3 + 0 - 6 = -3.            A = -3
  // Row 1: delta = 2 + 3 - 4 = 1.             A = 1 - 0.75 = 0.25
  // Row 0: delta = 1 + 2 - 2 = 1.             A = 1 + 0.0625 = 1.0625
  // Row 4: delta = 0 + 0.5 x 8 - 4 = 0.       A = 0
  // Row 3: delta = 1 + 0.5 x 4 - 2 = 1.       A = 1
  const Advantages result = ComputeGae(kSegments, kRewards, kValues, kFinalValues, kGamma, kLambda);
  EXPECT_EQ(result.advantages, (std::vector<float>{1.0625f, 0.25f, -3, 1, 0}));
  EXPECT_EQ(result.returns, (std::vector<float>{3.0625f, 4.25f, 3, 3, 4}));
}

TEST(AdvantagesTest, WithoutTimeLimitBootstrapATruncatedSegmentEndsInNothing) {
  // Segment two was truncated, three was cut; both have a final row.
  const std::vector<learner::TrainSegment> segments = {{.first_row = 0, .rows = 3, .final_row = -1},
                                                       {.first_row = 3, .rows = 2, .final_row = 0, .truncated = true},
                                                       {.first_row = 5, .rows = 1, .final_row = 1}};
  const std::vector<float> rewards = {1, 2, 3, 1, 0, 2};
  const std::vector<float> values = {2, 4, 6, 2, 4, 1};
  // Row 4: delta = 0 + 0 - 4 = -4.           A = -4
  // Row 3: delta = 1 + 0.5 x 4 - 2 = 1.      A = 1 - 1 = 0
  // Row 5: delta = 2 + 0.5 x 6 - 1 = 4.      A = 4
  const Advantages off = ComputeGae(segments, rewards, values, std::vector<float>{8, 6}, kGamma, kLambda, false);
  EXPECT_EQ(off.advantages, (std::vector<float>{1.0625f, 0.25f, -3, 0, -4, 4}));
  EXPECT_EQ(off.returns, (std::vector<float>{3.0625f, 4.25f, 3, 2, 0, 5}));
  const Advantages on = ComputeGae(segments, rewards, values, std::vector<float>{8, 6}, kGamma, kLambda, true);
  EXPECT_EQ(on.advantages, (std::vector<float>{1.0625f, 0.25f, -3, 1, 0, 4}));
}

TEST(AdvantagesTest, LambdaOneGivesDiscountedReturns) {
  // Returns: row 2: 3, row 1: 2 + 1.5, row 0: 1 + 1.75; row 4: 0 + 0.5 x 8, row 3: 1 + 0.5 x 4.
  const Advantages result = ComputeGae(kSegments, kRewards, kValues, kFinalValues, kGamma, 1.0);
  EXPECT_EQ(result.returns, (std::vector<float>{2.75f, 3.5f, 3, 3, 4}));
}

TEST(AdvantagesTest, LambdaZeroGivesOneStepErrors) {
  const Advantages result = ComputeGae(kSegments, kRewards, kValues, kFinalValues, kGamma, 0.0);
  EXPECT_EQ(result.advantages, (std::vector<float>{1, 1, -3, 1, 0}));
}

TEST(AdvantagesTest, WaitsDiscountByEnvSteps) {
  // Lambda 0.5 counts once a decision.
  // Row 2: delta = 3 + 0 - 6 = -3.                    A = -3
  // Row 1: delta = 2 + 0.5^3 x 6 - 4 = -1.25.         A = -1.25 + 0.125 x 0.5 x -3 = -1.4375
  // Row 0: delta = 1 + 0.5 x 4 - 2 = 1.               A = 1 + 0.25 x -1.4375 = 0.640625
  // Row 4: delta = 0 + 0.5^2 x 8 - 4 = -2.            A = -2
  // Row 3: delta = 1 + 0.5^4 x 4 - 2 = -0.75.         A = -0.75 + 0.0625 x 0.5 x -2 = -0.8125
  const std::vector<int32_t> waits = {1, 3, 1, 4, 2};
  const Advantages result = ComputeGae(kSegments, kRewards, kValues, kFinalValues, kGamma, kLambda, true, waits);
  EXPECT_EQ(result.advantages, (std::vector<float>{0.640625f, -1.4375f, -3, -0.8125f, -2}));
  EXPECT_EQ(result.returns, (std::vector<float>{2.640625f, 2.5625f, 3, 1.1875f, 2}));
  const std::vector<int32_t> ones(5, 1);
  EXPECT_EQ(ComputeGae(kSegments, kRewards, kValues, kFinalValues, kGamma, kLambda, true, ones).advantages,
            ComputeGae(kSegments, kRewards, kValues, kFinalValues, kGamma, kLambda).advantages);
}

TEST(AdvantagesTest, NothingCrossesSegments) {
  std::vector<float> rewards = kRewards;
  rewards[3] = 1e6f;
  const Advantages result = ComputeGae(kSegments, rewards, kValues, kFinalValues, kGamma, kLambda);
  EXPECT_EQ(result.advantages[2], -3);
  EXPECT_EQ(result.advantages[4], 0);
}

TEST(AdvantagesTest, RowsOfNoSegmentHaveNoAdvantage) {
  const Advantages result = ComputeGae({}, kRewards, kValues, {}, kGamma, kLambda);
  EXPECT_EQ(result.advantages, std::vector<float>(5, 0.0f));
  EXPECT_EQ(result.returns, kValues);
}

TEST(AdvantagesTest, NormalizesOverActiveRowsOnly) {
  const std::vector<float> normalized = NormalizeAdvantages({1, 1000, 3, 5}, std::vector<int32_t>{0, 2, 3});
  const float deviation = std::sqrt(8.0f / 3.0f);
  EXPECT_FLOAT_EQ(normalized[0], -2 / deviation);
  EXPECT_EQ(normalized[1], 0);
  EXPECT_FLOAT_EQ(normalized[2], 0);
  EXPECT_FLOAT_EQ(normalized[3], 2 / deviation);
}

TEST(AdvantagesTest, ActiveRowsWithoutADeviationScaleNoOthers) {
  const std::vector<int32_t> counted = {0, 1, 2, 3};
  const float deviation = std::sqrt(3.0f);  // of 1, 1, 1 and 5
  for (const std::vector<int32_t>& active : std::vector<std::vector<int32_t>>{{}, {1}, {0, 2}}) {
    const std::vector<float> normalized = NormalizeAdvantages({1, 1, 1, 5, 1000}, active, counted);
    for (const size_t row : {0, 1, 2}) EXPECT_FLOAT_EQ(normalized[row], -1 / deviation) << active.size();
    EXPECT_FLOAT_EQ(normalized[3], 3 / deviation) << active.size();
    EXPECT_EQ(normalized[4], 0);
  }
  // Two that differ do, with their own mean and deviation.
  const std::vector<float> normalized = NormalizeAdvantages({1, 1, 1, 5}, std::vector<int32_t>{0, 3}, counted);
  EXPECT_FLOAT_EQ(normalized[1], -1);
  EXPECT_FLOAT_EQ(normalized[3], 1);
}

TEST(AdvantagesTest, EqualAdvantagesBecomeZero) {
  for (const float value : NormalizeAdvantages({2, 2, 2}, std::vector<int32_t>{0, 1, 2})) EXPECT_EQ(value, 0);
}

TEST(AdvantagesTest, ExplainedVariance) {
  const std::vector<int32_t> rows = {0, 1, 2};
  const std::vector<float> returns = {1, 2, 3};
  EXPECT_DOUBLE_EQ(ExplainedVariance(returns, returns, rows), 1.0);
  EXPECT_DOUBLE_EQ(ExplainedVariance(returns, std::vector<float>{7, 7, 7}, rows), 0.0);
  EXPECT_DOUBLE_EQ(ExplainedVariance(returns, std::vector<float>{3, 2, 1}, rows), -3.0);
  EXPECT_DOUBLE_EQ(ExplainedVariance(std::vector<float>{2, 2, 2}, returns, rows), 0.0);
}

}  // namespace
}  // namespace troupe::training
