// The fused kernels' losses and their derivatives, row by row, against numbers worked out by hand from the formulas in
// ppo_row_loss.inc. All weights are zero, so that the networks' outputs are the biases of their last layers and the
// derivatives of the losses by those outputs are those biases' gradients.

#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/processor.h"
#include "lib/learner/testing/owned_train_batch.h"
#include "lib/policy/testing.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/ppo/ppo.h"
#include "lib/training/ppo/ppo_row_loss.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::FloatNear;

testing::Matcher<float> Is(double value) { return FloatNear(static_cast<float>(value), 2e-6f); }

policy::PolicySpec SpecOf(const space::Space& actions, bool mask = false) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = actions;
  spec.has_action_mask = mask;
  return spec;
}

/// One row, and what the networks say of it.
struct Row {
  std::vector<float> outputs;  ///< logits or means
  space::ActionWord action;
  double old_logp = 0;
  float advantage = 0;
  std::vector<uint8_t> mask = {};
  float value = 0, old_value = 0, target = 0;
};
space::ActionWord Category(int32_t category) {
  space::ActionWord word;
  word.i32 = category;
  return word;
}
space::ActionWord Number(float number) {
  space::ActionWord word;
  word.f32 = number;
  return word;
}

struct Result {
  StepTotals totals;
  std::vector<float> outputs;  ///< derivatives of the loss by the actor's outputs
  std::vector<float> log_std;
  float value = 0;  ///< by the critic's
};

class FusedLossesTest : public testing::TestWithParam<std::tuple<VectorUnit, int>> {
 protected:
  void SetUp() override {
    const VectorUnit unit = std::get<0>(GetParam());
    if (unit == VectorUnit::kAvx2 && !base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
    if (unit == VectorUnit::kAvx512 && !base::ProcessorHasAvx512()) GTEST_SKIP() << base::kNoAvx512;
  }

  /// Of a minibatch of `count` times the same row: the losses are means over rows, so none changes with it.
  Result StepOn(const policy::PolicySpec& spec, const Row& row, int64_t count = 1) const {
    learner::OwnedTrainBatch batch;
    const auto rows = static_cast<size_t>(count);
    batch.obs.assign(rows * 3, 0.5f);
    batch.actions.assign(rows, row.action);
    batch.logp.assign(rows, static_cast<float>(row.old_logp));
    batch.rewards.assign(rows, 0.0f);
    for (size_t r = 0; r < rows; ++r)
      batch.action_mask.insert(batch.action_mask.end(), row.mask.begin(), row.mask.end());
    learner::PolicyTrainBatch part;
    part.rows = count;
    part.segments = {{0, count}};
    batch.Add(std::move(part));

    PreparedBatch prepared;
    const absl::Status fits = prepared.Prepare(spec, {}, batch.batch.policies[0]);
    EXPECT_TRUE(fits.ok()) << fits;
    prepared.targets.advantages.assign(rows, row.advantage);
    prepared.targets.value_targets.assign(rows, row.target);
    prepared.targets.old_values.assign(rows, row.old_value);

    FlatParameters parameters{policy::ParameterLayout::For(spec)};
    const auto of = [&](const std::string& name, absl::Span<float> all) {
      const policy::ParameterEntry* entry = parameters.layout().Find(name);
      return entry == nullptr ? absl::Span<float>()
                              : all.subspan(static_cast<size_t>(entry->offset), static_cast<size_t>(entry->count));
    };
    const absl::Span<float> outputs = of("actor.2.bias", parameters.values());
    EXPECT_EQ(outputs.size(), row.outputs.size());
    std::copy(row.outputs.begin(), row.outputs.end(), outputs.begin());
    of("critic.1.bias", parameters.values())[0] = row.value;

    const auto team = std::make_shared<ThreadTeam>(std::get<1>(GetParam()));
    const auto backend = MakeFusedBackend(spec, team, std::get<0>(GetParam()));
    EXPECT_TRUE(backend.ok()) << backend.status();
    EXPECT_TRUE((*backend)->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
    EXPECT_TRUE((*backend)->BeginEpoch(prepared.active()).ok());
    StepSettings settings = settings_;
    settings.loss = PpoLossCall(options_);
    EXPECT_TRUE((*backend)->Step(0, count, settings).ok());
    Result result;
    result.totals = *(*backend)->TakeTotals();
    EXPECT_TRUE((*backend)->End().ok());
    EXPECT_EQ(result.totals.steps, 1);
    EXPECT_EQ(result.totals.rows, count);
    const auto gradient = [&](const std::string& name) {
      const absl::Span<float> entry = of(name, parameters.gradients());
      return std::vector<float>(entry.begin(), entry.end());
    };
    result.outputs = gradient("actor.2.bias");
    result.log_std = gradient("actor.log_std");
    result.value = gradient("critic.1.bias").at(0);
    return result;
  }

  PpoOptions options_ = [] {  // of which the loss reads its clips, 0.2 both
    PpoOptions options;
    options.use_value_clip = true;
    return options;
  }();
  StepSettings settings_;
};

// Two actions, of which each has probability 1/2: d logp(0) / d logits = (1/2, -1/2).
TEST_P(FusedLossesTest, TheClipBindsOnTheSideWhereTheRatioHasGoneTooFar) {
  const policy::PolicySpec spec = SpecOf(*space::Space::Discrete(2));
  const auto step = [&](double ratio, float advantage) {
    return StepOn(spec, {.outputs = {0, 0},
                         .action = Category(0),
                         .old_logp = std::log(0.5) - std::log(ratio),
                         .advantage = advantage});
  };
  // A > 0: -min(1.5 x 2, 1.2 x 2) = -2.4, which no longer depends on the ratio.
  Result far = step(1.5, 2);
  EXPECT_THAT(far.totals.policy_loss, DoubleNear(-2.4, 1e-5));
  EXPECT_EQ(far.totals.statistics[fused::kPpoClipped], 1);
  EXPECT_THAT(far.outputs, ElementsAre(Is(0), Is(0)));
  // A > 0, ratio too small: -min(0.5 x 2, 0.8 x 2) = -1; its derivative is -ratio A (1/2, -1/2).
  Result back = step(0.5, 2);
  EXPECT_THAT(back.totals.policy_loss, DoubleNear(-1, 1e-5));
  EXPECT_EQ(back.totals.statistics[fused::kPpoClipped], 1);
  EXPECT_THAT(back.outputs, ElementsAre(Is(-0.5), Is(0.5)));
  // A < 0: -min(0.5 x -2, 0.8 x -2) = 1.6, clipped.
  far = step(0.5, -2);
  EXPECT_THAT(far.totals.policy_loss, DoubleNear(1.6, 1e-5));
  EXPECT_THAT(far.outputs, ElementsAre(Is(0), Is(0)));
  // A < 0, ratio too large: -min(1.5 x -2, 1.2 x -2) = 3.
  back = step(1.5, -2);
  EXPECT_THAT(back.totals.policy_loss, DoubleNear(3, 1e-5));
  EXPECT_THAT(back.outputs, ElementsAre(Is(1.5), Is(-1.5)));
  // Within the interval both forms are one.
  const Result within = step(1.1, 2);
  EXPECT_THAT(within.totals.policy_loss, DoubleNear(-2.2, 1e-5));
  EXPECT_EQ(within.totals.statistics[fused::kPpoClipped], 0);
  EXPECT_THAT(within.outputs, ElementsAre(Is(-1.1), Is(1.1)));
  EXPECT_THAT(within.totals.statistics[fused::kPpoKl], DoubleNear(1.1 - 1 - std::log(1.1), 1e-6));
}

// Probabilities 3/4 and 1/4: H = 0.75 log(4/3) + 0.25 log 4 = 0.562335; d H / d logit k = -p (log p + H).
TEST_P(FusedLossesTest, TheEntropyIsRewarded) {
  const policy::PolicySpec spec = SpecOf(*space::Space::Discrete(2));
  settings_.entropy_coeff = 0.1;
  const Row row = {
      .outputs = {static_cast<float>(std::log(3.0)), 0}, .action = Category(1), .old_logp = std::log(0.25)};
  const Result step = StepOn(spec, row);
  EXPECT_THAT(step.totals.entropy, DoubleNear(0.5623351, 1e-6));
  EXPECT_THAT(step.totals.policy_loss, DoubleNear(0, 1e-6));
  // 0.1 x 0.75 x (log 0.75 + H) = 0.0205989: a descent step lowers the likelier one's logit.
  EXPECT_THAT(step.outputs, ElementsAre(Is(0.0205990), Is(-0.0205990)));
}

// Three actions, the third forbidden: 1/2, 1/2, 0.
TEST_P(FusedLossesTest, WhatTheMaskForbidsHasNoProbability) {
  const policy::PolicySpec spec = SpecOf(*space::Space::Discrete(3), /*mask=*/true);
  settings_.entropy_coeff = 0.1;
  const Row row = {
      .outputs = {0, 0, 5}, .action = Category(0), .old_logp = std::log(0.5), .advantage = 2, .mask = {1, 1, 0}};
  const Result step = StepOn(spec, row);
  EXPECT_THAT(step.totals.policy_loss, DoubleNear(-2, 1e-5)) << "the ratio is 1";
  EXPECT_THAT(step.totals.statistics[fused::kPpoKl], DoubleNear(0, 1e-6));
  EXPECT_THAT(step.totals.entropy, DoubleNear(std::log(2.0), 1e-6));
  EXPECT_THAT(step.outputs, ElementsAre(Is(-1), Is(1), Is(0)));
}

// A normal distribution with mean 0 and standard deviation 1, action 2: d logp / d mean = 2, d logp / d log std = 3.
TEST_P(FusedLossesTest, ANumberIsDrawnFromANormalDistribution) {
  const policy::PolicySpec spec = SpecOf(*space::Space::Box(-5, 5, {1}));
  settings_.entropy_coeff = 0.1;
  const double half_log_2_pi = 0.9189385332;
  const Row row = {.outputs = {0}, .action = Number(2), .old_logp = -2 - half_log_2_pi, .advantage = 3};
  const Result step = StepOn(spec, row);
  EXPECT_THAT(step.totals.policy_loss, DoubleNear(-3, 1e-5));
  EXPECT_THAT(step.totals.entropy, DoubleNear(half_log_2_pi + 0.5, 1e-6));
  EXPECT_THAT(step.outputs, ElementsAre(FloatNear(-6, 1e-5f)));
  EXPECT_THAT(step.log_std, ElementsAre(FloatNear(-9.1f, 2e-5f))) << "-3 x 3, and the entropy's -0.1";
}

TEST_P(FusedLossesTest, TheValueLossIsTheLargerOfTheTwoForms) {
  const policy::PolicySpec spec = SpecOf(*space::Space::Discrete(2));
  const auto step = [&](float value, float old_value, float target) {
    return StepOn(spec, {.outputs = {0, 0},
                         .action = Category(0),
                         .old_logp = std::log(0.5),
                         .value = value,
                         .old_value = old_value,
                         .target = target});
  };
  // From 1 to 0 is clipped to 0.8: half of (0.8 - 0.3)^2 is more than half of 0.3^2, and does not depend on the value.
  const Result binds = step(0, 1, 0.3f);
  EXPECT_THAT(binds.totals.value_loss, DoubleNear(0.125, 1e-6));
  EXPECT_THAT(binds.value, Is(0));
  // Half of (0 - 1)^2 is more than half of (0.8 - 1)^2.
  const Result free = step(0, 1, 1);
  EXPECT_THAT(free.totals.value_loss, DoubleNear(0.5, 1e-6));
  EXPECT_THAT(free.value, Is(-1));
  // A move of 0.1 is not clipped: 0 - 0.5.
  const Result within = step(0, 0.1f, 0.5f);
  EXPECT_THAT(within.totals.value_loss, DoubleNear(0.125, 1e-6));
  EXPECT_THAT(within.value, Is(-0.5));

  settings_.value_loss_coeff = 2;
  EXPECT_THAT(step(0, 1, 1).value, Is(-2));
  options_.use_value_clip = false;
  EXPECT_THAT(step(0, 1, 0.3f).value, Is(-0.6));
  // Huber: beyond delta the slope is delta, the loss delta (|x| - delta / 2).
  settings_.huber_delta = 0.25;
  const Result linear = step(0, 0, 1);
  EXPECT_THAT(linear.totals.value_loss, DoubleNear(0.21875, 1e-6));
  EXPECT_THAT(linear.value, Is(-0.5));
}

TEST_P(FusedLossesTest, LossesAreMeansOverTheRowsOfAMinibatch) {
  const policy::PolicySpec spec = SpecOf(*space::Space::Discrete(2));
  settings_.entropy_coeff = 0.1;
  const Row row = {
      .outputs = {1, 0}, .action = Category(1), .old_logp = -1, .advantage = 1.5f, .value = 1, .target = 2};
  const Result one = StepOn(spec, row);
  for (const int64_t rows : {7, 100, 700}) {
    const Result many = StepOn(spec, row, rows);
    EXPECT_NEAR(many.totals.policy_loss, one.totals.policy_loss * static_cast<double>(rows), 1e-3);
    EXPECT_THAT(many.outputs, ElementsAre(Is(one.outputs[0]), Is(one.outputs[1])));
    EXPECT_THAT(many.value, Is(one.value));
  }
}

INSTANTIATE_TEST_SUITE_P(Units, FusedLossesTest,
                         testing::Combine(testing::Values(VectorUnit::kAvx2, VectorUnit::kAvx512),
                                          testing::Values(1, 3)),
                         [](const testing::TestParamInfo<FusedLossesTest::ParamType>& info) {
                           return absl::StrCat(std::get<0>(info.param) == VectorUnit::kAvx2 ? "Avx2_" : "Avx512_",
                                               std::get<1>(info.param));
                         });

}  // namespace
}  // namespace troupe::training
