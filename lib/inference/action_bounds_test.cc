#include "lib/inference/action_bounds.h"

#include <cmath>

#include "lib/policy/policy_spec.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

policy::PolicySpec ContinuousSpec(policy::ActionBoundMethod method, bool scaling) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("p");
  spec.observation_space = *space::Space::Box(-1, 1, {3});
  spec.action_space = *space::Space::Tuple({*space::Space::Discrete(4), *space::Space::Box({-2, 0}, {2, 10}, {2})});
  spec.action_bound_method = method;
  spec.action_scaling = scaling;
  return spec;
}

std::vector<float> Bound(const ActionBounds& bounds, float a, float b) {
  space::ActionWord words[3];
  words[0].i32 = 3;
  words[1].f32 = a;
  words[2].f32 = b;
  space::ActionWord out[3];
  bounds.Apply(words, absl::MakeSpan(out));
  EXPECT_EQ(out[0].i32, 3) << "discrete words pass unchanged";
  return {out[1].f32, out[2].f32};
}

TEST(ActionBoundsTest, NonePassesEverything) {
  const ActionBounds bounds(ContinuousSpec(policy::ActionBoundMethod::kNone, false));
  EXPECT_TRUE(bounds.identity());
  EXPECT_EQ(Bound(bounds, -70.0f, 70.0f), (std::vector<float>{-70.0f, 70.0f}));
}

TEST(ActionBoundsTest, NoneWithScalingMapsWithoutClipping) {
  const ActionBounds bounds(ContinuousSpec(policy::ActionBoundMethod::kNone, true));
  EXPECT_FALSE(bounds.identity());
  EXPECT_EQ(Bound(bounds, 0.5f, 3.0f), (std::vector<float>{1.0f, 20.0f}));
}

TEST(ActionBoundsTest, ClipTakesTheBox) {
  const ActionBounds bounds(ContinuousSpec(policy::ActionBoundMethod::kClip, false));
  EXPECT_EQ(Bound(bounds, -3.0f, 4.0f), (std::vector<float>{-2.0f, 4.0f}));
  EXPECT_EQ(Bound(bounds, 1.5f, -4.0f), (std::vector<float>{1.5f, 0.0f}));
}

TEST(ActionBoundsTest, ClipWithScalingClipsToOneAndMaps) {
  const ActionBounds bounds(ContinuousSpec(policy::ActionBoundMethod::kClip, true));
  EXPECT_EQ(Bound(bounds, -3.0f, 4.0f), (std::vector<float>{-2.0f, 10.0f}));
  EXPECT_EQ(Bound(bounds, 0.25f, -0.5f), (std::vector<float>{0.5f, 2.5f}));
}

TEST(ActionBoundsTest, ClipWithScalingClipsToOneAlsoWhereTheBoxEndsBelowOne) {
  policy::PolicySpec spec = ContinuousSpec(policy::ActionBoundMethod::kClip, true);
  spec.action_space =
      *space::Space::Tuple({*space::Space::Discrete(4), *space::Space::Box({-4, 0.25}, {0, 0.75}, {2})});
  EXPECT_EQ(Bound(ActionBounds(spec), 0.5f, 0.75f), (std::vector<float>{-1.0f, 0.6875f}));
}

TEST(ActionBoundsTest, TanhNeverLeavesTheBox) {
  const ActionBounds bounds(ContinuousSpec(policy::ActionBoundMethod::kTanh, true));
  EXPECT_EQ(Bound(bounds, -100.0f, 100.0f), (std::vector<float>{-2.0f, 10.0f}));
  const std::vector<float> inside = Bound(bounds, 0.3f, -0.7f);
  EXPECT_FLOAT_EQ(inside[0], 2.0f * std::tanh(0.3f));
  EXPECT_FLOAT_EQ(inside[1], 5.0f * (std::tanh(-0.7f) + 1.0f));
}

TEST(ActionBoundsTest, DiscreteOnlyIsIdentity) {
  policy::PolicySpec spec = ContinuousSpec(policy::ActionBoundMethod::kClip, false);
  spec.action_space = *space::Space::Discrete(4);
  EXPECT_TRUE(ActionBounds(spec).identity());
}

}  // namespace
}  // namespace troupe::inference
