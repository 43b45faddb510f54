// Where the numbers of an action's distributions lie, what of them is first, and what a trainer is not to be given.

#include "lib/training/core/action_head.h"

#include <cmath>
#include <string>
#include <vector>

#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/training/core/parameters.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/fused/fused_loss_numbers.h"
#include "lib/training/fused/fused_support.h"
#include "lib/training/testing/random_batch.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::ContinuousDistribution;

policy::PolicySpec MixedSpec() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = *space::Space::Tuple(
      {*space::Space::Box(-1, 1, {2}), *space::Space::MultiDiscrete({3, 4}), *space::Space::Box(-1, 1, {1})});
  return spec;
}

policy::PolicySpec BetaSpec() {
  policy::PolicySpec spec = MixedSpec();
  spec.continuous = ContinuousDistribution::kBeta;
  spec.action_scaling = true;
  return spec;
}

/// (first output, words, first action word, place in log_std) of each continuous part.
std::vector<std::vector<int64_t>> PartsOf(const policy::PolicySpec& spec) {
  std::vector<std::vector<int64_t>> parts;
  for (const ContinuousPart& part : ActionHead::For(spec).continuous) {
    parts.push_back({part.output, part.words, part.word, part.log_std});
  }
  return parts;
}

TEST(ActionHeadTest, ContinuousPartsStandBehindAllLogits) {
  using Parts = std::vector<std::vector<int64_t>>;
  policy::PolicySpec spec = MixedSpec();
  EXPECT_EQ(PartsOf(spec), (Parts{{7, 2, 0, 0}, {9, 1, 4, 2}}));
  EXPECT_TRUE(ActionHead::For(spec).is_plain());
  spec.free_log_std = false;
  EXPECT_EQ(PartsOf(spec), (Parts{{7, 2, 0, -1}, {11, 1, 4, -1}}));
  EXPECT_FALSE(ActionHead::For(spec).is_plain());
  EXPECT_EQ(PartsOf(BetaSpec()), (Parts{{7, 2, 0, -1}, {11, 1, 4, -1}}));
  EXPECT_FALSE(ActionHead::For(BetaSpec()).is_plain());
  spec = MixedSpec();
  spec.continuous = ContinuousDistribution::kSquashedGaussian;
  EXPECT_EQ(PartsOf(spec), (Parts{{7, 2, 0, 0}, {9, 1, 4, 2}}));
  EXPECT_FALSE(ActionHead::For(spec).is_plain());
  EXPECT_TRUE(ActionHead::For(policy::SmallSpecForTesting()).is_plain());
}

TEST(ActionHeadTest, TheFirstPredictedDeviationIsTheConfiguredOne) {
  policy::PolicySpec spec = MixedSpec();
  spec.free_log_std = false;
  spec.initial_log_std = -0.75;
  const auto last_bias = [](const policy::PolicySpec& of) {
    const FlatParameters parameters = InitialParameters(of, 7);
    const policy::ParameterEntry& bias = *parameters.layout().Find("actor.2.bias");
    const absl::Span<const float> values =
        parameters.values().subspan(static_cast<size_t>(bias.offset), static_cast<size_t>(bias.count));
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(last_bias(spec), (std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 0, -0.75f, -0.75f, 0, -0.75f}));
  spec = BetaSpec();
  spec.initial_log_std = -0.75;
  EXPECT_EQ(last_bias(spec), std::vector<float>(13, 0.0f)) << "of no Beta";
  // Uniform ones of torch are moved by it.
  spec = MixedSpec();
  spec.free_log_std = false;
  spec.actor.initializer = policy::Initializer::kTorch;
  const std::vector<float> before = last_bias(spec);
  spec.initial_log_std = 2;
  EXPECT_FLOAT_EQ(last_bias(spec)[9], before[9] + 2);
  EXPECT_EQ(last_bias(spec)[8], before[8]);
}

TEST(ActionHeadTest, ABetaIsTrainedOnActionsThatItMayDraw) {
  const policy::PolicySpec spec = BetaSpec();
  const auto status = [&spec](float action) {
    RandomBatch batch(spec, {4}, 1);
    batch.actions[2 * 5 + 4].f32 = action;
    PreparedBatch prepared;
    return prepared.Prepare(spec, {}, batch.rows());
  };
  EXPECT_TRUE(status(policy::kMaxBetaAction).ok()) << status(policy::kMaxBetaAction);
  for (const float action : {1.0f, -1.0f, 7.0f, std::nanf("")}) {
    EXPECT_EQ(status(action).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status(action).message().find("action word 4 of row 2 is "), absl::string_view::npos) << status(action);
    EXPECT_NE(status(action).message().find("; expected a number between -1 and 1"), absl::string_view::npos);
  }
}

TEST(LogStdTest, StaysWithinItsBoundsAndHasNoGradientBeyond) {
  policy::PolicySpec spec = MixedSpec();
  spec.min_log_std = -1;
  spec.max_log_std = 0.5;
  if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  const fused::Workspace space(spec, *fused::FindKernels(VectorUnit::kBest), 1);
  ASSERT_EQ(space.log_std_size, 3);
  fused::LogStd log_std;
  const float values[] = {-1.5f, 0.5f, 0.75f};
  log_std.Take(space, values);
  EXPECT_EQ(std::vector<float>(log_std.data(), log_std.data() + 3), (std::vector<float>{-1, 0.5f, 0.5f}));
  float gradient[] = {1, 2, 3};
  log_std.ZeroBeyond(gradient);
  EXPECT_EQ(std::vector<float>(gradient, gradient + 3), (std::vector<float>{0, 2, 0}));
  // A NaN is for the loss to show.
  const float broken[] = {0, std::nanf(""), 0};
  log_std.Take(space, broken);
  EXPECT_TRUE(std::isnan(log_std.data()[1]));
}

}  // namespace
}  // namespace troupe::training
