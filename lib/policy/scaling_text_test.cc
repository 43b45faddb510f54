#include "lib/policy/scaling_text.h"

#include <string>

#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

PolicySpec With(const std::string& observation, const std::string& action) {
  PolicySpec spec = SmallSpecForTesting();
  spec.observation_space = *space::ParseSpace(observation);
  spec.action_space = *space::ParseSpace(action);
  spec.action_scaling = spec.HasContinuousActions() && spec.HasBoundedActions();
  return spec;
}

TEST(ScalingTextTest, SaysHowNumbersAreScaled) {
  EXPECT_EQ(ScalingText({With("Box(-1, 1, [3])", "Discrete(2)")}), "observations as they are; actions discrete");
  EXPECT_EQ(ScalingText({With("Box(0, 1, [8], uint8)", "Box(0, 1000, [1])")}),
            "observations bytes to [0, 1] by their bounds; actions from [-1, 1] to their Box");
  EXPECT_EQ(ScalingText({With("Box(0, 255, [84, 84, 4], uint8)", "Box(-inf, inf, [1])")}),
            "observations bytes divided by 255; actions not scaled, their Box has no bounds");
  PolicySpec before = With("Box(0, 1, [8], uint8)", "Box(0, 1000, [1])");
  before.bytes_by_255 = true;
  before.action_scaling = false;
  before.normalize_observations = true;
  EXPECT_EQ(ScalingText({before}),
            "observations bytes divided by 255, then normalized; actions clipped to their Box, not scaled");
}

TEST(ScalingTextTest, NamesPoliciesThatDiffer) {
  PolicySpec one = With("Box(-1, 1, [3])", "Discrete(2)");
  PolicySpec two = With("Box(-1, 1, [3])", "Box(0, 9, [1])");
  PolicySpec third = one;
  PolicySpec random = With("Box(-1, 1, [4])", "Box(0, 9, [1])");
  two.id = PolicyId("q");
  third.id = PolicyId("r");
  random.policy_class = *ParsePolicyClass("random");
  EXPECT_EQ(ScalingText({one, two, third, random}),
            "p: observations as they are; actions discrete; q: observations as they are; actions from [-1, 1] to their "
            "Box");
  EXPECT_EQ(ScalingText({one, third, random}), "observations as they are; actions discrete");
}

}  // namespace
}  // namespace troupe::policy
