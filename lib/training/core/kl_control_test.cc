#include "lib/training/core/kl_control.h"

#include <gtest/gtest.h>

namespace troupe::training {
namespace {

TEST(KlAdaptiveRateTest, FollowsTheDivergenceWithinItsBounds) {
  const KlAdaptiveRate rate{.lr_kl_target = 0.01, .lr_kl_factor = 2, .lr_kl_step = 4, .min_lr = 1e-3, .max_lr = 8e-3};
  EXPECT_EQ(rate.Next(4e-3, 0.021), 1e-3);
  EXPECT_EQ(rate.Next(4e-3, 0.02), 4e-3) << "as much as it may be";
  EXPECT_EQ(rate.Next(4e-3, 0.005), 4e-3);
  EXPECT_EQ(rate.Next(4e-3, 0.0049), 8e-3) << "at most max_lr";
  EXPECT_EQ(rate.Next(2e-3, 0.0), 8e-3);
  EXPECT_EQ(rate.Next(2e-3, 1e9), 1e-3) << "at least min_lr";
  EXPECT_FALSE(KlAdaptiveRate().is_on());
}

TEST(KlPenaltyTest, FollowsTheDivergence) {
  const KlPenalty penalty{.use_kl_loss = true, .kl_coeff = 1, .kl_target = 0.01};
  EXPECT_TRUE(penalty.adapts());
  EXPECT_EQ(penalty.Next(0.2, 0.021), 0.2 * 1.5);
  EXPECT_EQ(penalty.Next(0.2, 0.02), 0.2);
  EXPECT_EQ(penalty.Next(0.2, 0.005), 0.2);
  EXPECT_EQ(penalty.Next(0.2, 0.004), 0.1);
  EXPECT_EQ(penalty.Next(1.5e-6, 0), 1e-6) << "from where it comes back";
  EXPECT_EQ(penalty.Next(1e-6, 1), 1.5e-6);
  EXPECT_EQ(penalty.Next(0, 1), 1e-6) << "of a state of before";
  EXPECT_EQ(penalty.Next(9e5, 1), 1e6);
  EXPECT_EQ(penalty.Next(1e6, 0.01), 1e6);
  EXPECT_FALSE((KlPenalty{.use_kl_loss = true, .kl_target = 0}).adapts());
  EXPECT_FALSE((KlPenalty{.use_kl_loss = false, .kl_target = 1}).adapts());
}

}  // namespace
}  // namespace troupe::training
