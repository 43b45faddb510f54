#include "lib/training/core/adam.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::training {
namespace {

OptimizerOptions Settings() {
  OptimizerOptions settings;
  settings.adam_beta1 = 0.9;
  settings.adam_beta2 = 0.99;
  settings.adam_epsilon = 1e-5;
  settings.max_grad_norm = 0;
  return settings;
}

TEST(AdamTest, TwoStepsByHand) {
  // Step 1 with g = 2: m = 0.2, v = 0.04; corrected 2 and 4, so p moves by 0.1 x 2 / (2 + 1e-5).
  // Step 2 with g = -1: m = 0.08, v = 0.0496; corrected 0.08 / 0.19 and 0.0496 / 0.0199.
  std::vector<float> p = {1}, m = {0}, v = {0};
  ApplyAdam(AdamStep::At(1, 0.1, Settings(), 0), std::vector<float>{2}, absl::MakeSpan(p), absl::MakeSpan(m),
            absl::MakeSpan(v));
  const double after_one = 1 - 0.1 * 2 / (2 + 1e-5);
  EXPECT_NEAR(p[0], after_one, 1e-6);
  EXPECT_NEAR(m[0], 0.2, 1e-7);
  EXPECT_NEAR(v[0], 0.04, 1e-7);
  ApplyAdam(AdamStep::At(2, 0.1, Settings(), 0), std::vector<float>{-1}, absl::MakeSpan(p), absl::MakeSpan(m),
            absl::MakeSpan(v));
  EXPECT_NEAR(p[0], after_one - 0.1 * (0.08 / 0.19) / (std::sqrt(0.0496 / 0.0199) + 1e-5), 1e-6);
}

TEST(AdamTest, ZeroGradientMovesNothing) {
  std::vector<float> p = {3}, m = {0}, v = {0};
  ApplyAdam(AdamStep::At(1, 0.1, Settings(), 0), std::vector<float>{0}, absl::MakeSpan(p), absl::MakeSpan(m),
            absl::MakeSpan(v));
  EXPECT_EQ(p[0], 3);
}

}  // namespace
}  // namespace troupe::training
