// LibTorch's back end of a critic that shares the actor's encoder: one pass, both losses, one gradient.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/a2c/a2c.h"
#include "lib/training/core/moments.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/ppo/ppo.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/small_update.h"
#include "lib/training/testing/test_device.h"
#include "lib/training/torch/torch_backend.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;

const policy::PolicySlot kSlot(0);

std::unique_ptr<NetworkBackend> MakeHost(const policy::PolicySpec& spec, int threads = 1) {
  return *MakeTorchBackend(spec, Device{}, TorchPath::kHost, std::make_shared<ThreadTeam>(threads));
}

/// Sections of a flat array.
std::vector<float> Section(const policy::ParameterLayout& layout, const char* role, absl::Span<const float> flat) {
  const policy::ParameterSection& section = *layout.FindSection(role);
  return {flat.begin() + section.offset, flat.begin() + section.offset + section.size};
}

bool IsZero(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

/// Observations of one number, one unit without activation, two actions.
policy::PolicySpec UnitSpec() {
  policy::PolicySpec spec = policy::SharedSpecForTesting();
  spec.observation_space = *space::Space::Box(-10, 10, {1});
  spec.actor.hidden_sizes = {1};
  spec.SetActivation(policy::Activation::kIdentity);
  return spec;
}

// h = w x, logits a h, value c h; loss -A log p(action) + k / 2 (v - t)^2.
TEST(TorchSharedTest, TheSharedGradientIsTheSumOfBothLosses) {
  const policy::PolicySpec spec = UnitSpec();
  RandomBatch batch(spec, {1}, 1);
  batch.obs[0] = 2.0f;
  batch.actions[0].i32 = 1;
  PreparedBatch prepared;
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows()).ok());
  prepared.targets.advantages = {1.5f};
  prepared.targets.value_targets = {0.25f};
  prepared.targets.old_values = {0.0f};
  FlatParameters parameters(policy::ParameterLayout::For(spec));
  const auto at = [&](const char* name, size_t i = 0) -> size_t {
    return static_cast<size_t>(parameters.layout().Find(name)->offset) + i;
  };
  const double x = 2, w = 0.5, a[] = {0.3, -0.4}, c = 0.7, k = 0.8;
  parameters.values()[at("actor.0.weight")] = static_cast<float>(w);
  for (size_t i = 0; i < 2; ++i) parameters.values()[at("actor.1.weight", i)] = static_cast<float>(a[i]);
  parameters.values()[at("critic.0.weight")] = static_cast<float>(c);

  const auto backend = MakeHost(spec);
  ASSERT_TRUE(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
  const auto values = backend->Values();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_NEAR(values->at(0), c * w * x, 1e-6);
  const std::vector<int32_t> order = {0};
  ASSERT_TRUE(backend->BeginEpoch(order).ok());
  StepSettings settings;
  settings.loss = A2cLossCall();
  settings.entropy_coeff = 0;
  settings.value_loss_coeff = k;
  settings.learning_rate = settings.critic_learning_rate = 0;
  ASSERT_TRUE(backend->Step(0, 1, settings).ok());

  const double h = w * x;
  const double p1 = 1 / (1 + std::exp((a[0] - a[1]) * h));
  const double by_logits[] = {1.5 * (1 - p1), -1.5 * (1 - p1)};
  const double by_value = k * (c * h - 0.25);
  const absl::Span<const float> gradient = parameters.gradients();
  EXPECT_NEAR(gradient[at("actor.0.weight")], (by_logits[0] * a[0] + by_logits[1] * a[1] + by_value * c) * x, 1e-6);
  EXPECT_NEAR(gradient[at("actor.1.weight", 0)], by_logits[0] * h, 1e-6);
  EXPECT_NEAR(gradient[at("actor.1.weight", 1)], by_logits[1] * h, 1e-6);
  EXPECT_NEAR(gradient[at("critic.0.weight")], by_value * h, 1e-6);
  EXPECT_NEAR(gradient[at("critic.0.bias")], by_value, 1e-6);
}

/// A policy with convolutions, whose minibatches two threads have in halves, with a core or without.
policy::PolicySpec SharedSpec(bool with_core) {
  policy::PolicySpec spec = policy::SharedSpecForTesting();
  spec.observation_space = *space::Space::Box(-10, 10, {4, 3, 1});
  spec.actor.encoder = policy::EncoderKind::kCnn;
  spec.actor.conv_layers = {{.channels = 2, .kernel = 2, .stride = 1}};
  spec.mutable_critic()->head_hidden_sizes = {5};
  if (!with_core) return spec;
  spec.actor.core = {.kind = policy::CoreKind::kGru, .size = 5, .layers = 1};
  spec.sequence_length = 4;
  return spec;
}

std::unique_ptr<TrainerHost> MakeHostOf(const policy::PolicySpec& spec, const PpoOptions& options, int threads) {
  const auto team = std::make_shared<ThreadTeam>(threads);
  return *MakePpoHost(
      {spec}, {options}, 1,
      [team](const policy::PolicySpec& made) { return MakeTorchBackend(made, Device{}, TorchPath::kHost, team); },
      team);
}

class TorchSharedUpdateTest : public testing::TestWithParam<bool> {};

/// Gradients of one step over all units where `values` or `policy` losses alone count, or both.
std::vector<float> GradientOf(const policy::PolicySpec& spec, const RandomBatch& batch, bool policy, bool values,
                              int threads, const PrepareOptions& prepare) {
  PreparedBatch prepared;
  EXPECT_TRUE(prepared.Prepare(spec, {}, batch.batch.policies[0], nullptr, prepare).ok());
  const auto rows = static_cast<size_t>(prepared.rows());
  for (size_t row = 0; row < rows; ++row) {
    prepared.targets.advantages.push_back(policy ? std::sin(static_cast<float>(row)) : 0.0f);
    prepared.targets.value_targets.push_back(std::cos(static_cast<float>(row)));
  }
  prepared.targets.old_values.assign(rows, 0.0f);
  FlatParameters parameters = InitialParameters(spec, 3);
  const auto backend = MakeHost(spec, threads);
  EXPECT_TRUE(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
  std::vector<int32_t> order;
  const size_t units = prepared.sequences().empty() ? rows : prepared.sequences().size();
  for (size_t i = 0; i < units; ++i) order.push_back(static_cast<int32_t>(i));
  EXPECT_TRUE(backend->BeginEpoch(order).ok());
  StepSettings settings;
  settings.loss = PpoLossCall(PpoOptions());
  settings.entropy_coeff = policy ? 0.01 : 0;
  settings.value_loss_coeff = values ? 0.5 : 0;
  settings.learning_rate = settings.critic_learning_rate = 0;
  EXPECT_TRUE(backend->Step(0, static_cast<int64_t>(units), settings).ok());
  EXPECT_EQ(backend->TakeTotals()->steps, 1);
  return {parameters.gradients().begin(), parameters.gradients().end()};
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-6) << i;
}

// Dead agents' rows count in the critic's loss alone.
TEST_P(TorchSharedUpdateTest, LossesOfDifferentRowsAddUpWhereverTheyAreComputed) {
  const policy::PolicySpec spec = SharedSpec(GetParam());
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const RandomBatch batch(spec, kSmallUpdateSegments, 1, /*inactive_rows=*/true);
  const PrepareOptions prepare = {.use_policy_active_masks = true, .use_value_active_masks = false};
  const std::vector<float> of_policy = GradientOf(spec, batch, true, false, 1, prepare);
  const std::vector<float> of_values = GradientOf(spec, batch, false, true, 1, prepare);
  EXPECT_FALSE(IsZero(Section(layout, policy::kActorRole, of_policy)));
  EXPECT_TRUE(IsZero(Section(layout, policy::kCriticRole, of_policy)));
  EXPECT_FALSE(IsZero(Section(layout, policy::kActorRole, of_values)));
  EXPECT_FALSE(IsZero(Section(layout, policy::kCriticRole, of_values)));
  std::vector<float> sum = of_policy;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += of_values[i];
  ExpectNear(GradientOf(spec, batch, true, true, 1, prepare), sum);
  // In halves, each thread one.
  ExpectNear(GradientOf(spec, batch, true, true, 2, prepare), sum);
}

TEST_P(TorchSharedUpdateTest, AHalfOfDeadAgentsHasNoShareInThePolicysLoss) {
  const policy::PolicySpec spec = SharedSpec(GetParam());
  RandomBatch batch(spec, kSmallUpdateSegments, 1);
  std::vector<uint8_t> first_half(55, 0);
  std::fill(first_half.begin(), first_half.begin() + 20, 1);
  batch.rows().agent_mask = first_half;
  const PrepareOptions prepare = {.use_policy_active_masks = true, .use_value_active_masks = false};
  const std::vector<float> whole = GradientOf(spec, batch, true, true, 1, prepare);
  EXPECT_TRUE(std::all_of(whole.begin(), whole.end(), [](float value) { return std::isfinite(value); }));
  ExpectNear(GradientOf(spec, batch, true, true, 2, prepare), whole);
}

TEST_P(TorchSharedUpdateTest, TrainsOnTheSameBitsAfterAResume) {
  const policy::PolicySpec spec = SharedSpec(GetParam());
  RandomBatch batch(spec, kSmallUpdateSegments, 1);
  const auto whole = MakeHostOf(spec, SmallUpdateOptions(), 2);
  ASSERT_TRUE(whole->Update(batch.batch, SmallUpdateContext(0)).ok());
  const auto resumed = MakeHostOf(spec, SmallUpdateOptions(), 2);
  ASSERT_TRUE(resumed->ImportState(*whole->ExportState(kSlot), kSlot).ok());
  ASSERT_TRUE(whole->Update(batch.batch, SmallUpdateContext(1)).ok());
  ASSERT_TRUE(resumed->Update(batch.batch, SmallUpdateContext(1)).ok());
  policy::ExpectSameBits(*whole->ExportState(kSlot), *resumed->ExportState(kSlot));
}

TEST_P(TorchSharedUpdateTest, WhatIsNotFiniteIsSkipped) {
  const policy::PolicySpec spec = SharedSpec(GetParam());
  const auto trainer = MakeHostOf(spec, SmallUpdateOptions(), 2);
  RandomBatch bad(spec, kSmallUpdateSegments, 1);
  bad.rewards[3] = std::numeric_limits<float>::infinity();
  const std::vector<float> before = trainer->ExportState(kSlot)->parameters();
  const auto reports = trainer->Update(bad.batch, SmallUpdateContext(0));
  ASSERT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(reports->at(0).minibatch_steps, 0);
  EXPECT_EQ(trainer->ExportState(kSlot)->parameters(), before);
}

// actor.* is the encoder, too; what is left is the critic's head.
TEST_P(TorchSharedUpdateTest, WhoFreezesTheActorFreezesWhatIsShared) {
  const policy::PolicySpec spec = SharedSpec(GetParam());
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  PpoOptions options = SmallUpdateOptions();
  options.frozen_parameters = {"actor.*"};
  const auto trainer = MakeHostOf(spec, options, 2);
  RandomBatch batch(spec, kSmallUpdateSegments, 1);
  const std::vector<float> before = trainer->ExportState(kSlot)->parameters();
  ASSERT_TRUE(trainer->Update(batch.batch, SmallUpdateContext(0)).ok());
  const std::vector<float> after = trainer->ExportState(kSlot)->parameters();
  EXPECT_EQ(Section(layout, policy::kActorRole, before), Section(layout, policy::kActorRole, after));
  EXPECT_NE(Section(layout, policy::kCriticRole, before), Section(layout, policy::kCriticRole, after));
}

TEST_P(TorchSharedUpdateTest, TheCriticsRateHasNoEffect) {
  const policy::PolicySpec spec = SharedSpec(GetParam());
  RandomBatch batch(spec, kSmallUpdateSegments, 1);
  std::vector<std::vector<float>> parameters;
  for (const double rate : {0.0, 0.5}) {
    PpoOptions options = SmallUpdateOptions();
    options.critic_learning_rate = rate;
    options.clip_grad_norm_by = rate > 0 ? ClipGradNormBy::kNetwork : ClipGradNormBy::kPolicy;
    const auto trainer = MakeHostOf(spec, options, 1);
    ASSERT_TRUE(trainer->Update(batch.batch, SmallUpdateContext(0)).ok());
    parameters.push_back(trainer->ExportState(kSlot)->parameters());
  }
  EXPECT_EQ(parameters[0], parameters[1]);
}

// PopArt rescales the critic's own last layer, so that values in the units of rewards stay.
TEST_P(TorchSharedUpdateTest, PopArtLeavesWhatIsShared) {
  const policy::PolicySpec spec = SharedSpec(GetParam());
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  PpoOptions options = SmallUpdateOptions();
  options.use_value_norm = false;
  options.use_popart = true;
  options.learning_rate = 1e-12;
  const auto trainer = MakeHostOf(spec, options, 2);
  RandomBatch batch(spec, kSmallUpdateSegments, 1);
  for (float& reward : batch.rewards) reward += 100;
  const std::vector<float> before = trainer->ExportState(kSlot)->parameters();
  ASSERT_TRUE(trainer->Update(batch.batch, SmallUpdateContext(0)).ok());
  const std::vector<float> after = trainer->ExportState(kSlot)->parameters();
  for (int64_t i = 0; i < layout.acting_size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-9);
  EXPECT_NE(before[layout.Find("critic.1.weight")->offset], after[layout.Find("critic.1.weight")->offset]);
  EXPECT_NE(after[layout.Find("critic.1.bias")->offset], 0);
}

// Each row has an input of its own, so that there are no units to cut.
TEST(TorchSharedTest, MinibatchesOfEnvStepsAreThoseOfRows) {
  const policy::PolicySpec spec = SharedSpec(/*with_core=*/false);
  RandomBatch batch(spec, kSmallUpdateSegments, 1);
  std::vector<std::vector<float>> parameters;
  for (const MinibatchBy by : {MinibatchBy::kRows, MinibatchBy::kEnvSteps}) {
    PpoOptions options = SmallUpdateOptions();
    options.minibatch_by = by;
    const auto trainer = MakeHostOf(spec, options, 1);
    ASSERT_TRUE(trainer->Update(batch.batch, SmallUpdateContext(0)).ok());
    parameters.push_back(trainer->ExportState(kSlot)->parameters());
  }
  EXPECT_EQ(parameters[0], parameters[1]);
}

INSTANTIATE_TEST_SUITE_P(All, TorchSharedUpdateTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "CnnAndGru" : "Cnn"; });

TEST(TorchSharedTest, ActorsBeginAsThoseOfSeparateNetworks) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(policy::SharedSpecForTesting());
  EXPECT_EQ(layout.ActingPart(InitialParameters(policy::SharedSpecForTesting(), 3).values()),
            layout.ActingPart(InitialParameters(policy::SmallSpecForTesting(), 3).values()));
}

TEST(TorchSharedTest, BackwardOfTheCriticReachesTheEncoder) {
  policy::PolicySpec spec = policy::SharedSpecForTesting();
  spec.mutable_critic()->head_hidden_sizes = {5};
  spec.actor.activation = policy::Activation::kRelu;  // the head's is tanh
  const RandomBatch batch(spec, {6}, 1);
  PreparedBatch prepared;
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.batch.policies[0]).ok());
  FlatParameters parameters = InitialParameters(spec, 3);
  const auto backend = MakeHost(spec);
  ASSERT_TRUE(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
  const std::vector<float> values = *backend->Values();
  const std::vector<int32_t> rows = {0, 1, 2, 3, 4, 5};
  const NetworkCall call{"critic", parameters.values(), prepared.critic_input(), rows};
  const auto outputs = backend->Forward(call);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(*outputs, std::vector<float>(values.begin(), values.begin() + 6));
  std::vector<float> gradients(parameters.values().size(), 0.0f);
  std::vector<float> by_inputs(18, 0.0f);
  ASSERT_TRUE(
      backend->Backward(call, std::vector<float>(6, 1.0f), absl::MakeSpan(gradients), absl::MakeSpan(by_inputs)).ok());
  // The derivative along a direction of all parameters, by a difference in single precision.
  const policy::ParameterLayout& layout = parameters.layout();
  EXPECT_FALSE(IsZero(by_inputs));
  const auto entry = *layout.Find("actor.0.bias");
  for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
    std::vector<float> moved(parameters.values().begin(), parameters.values().end());
    moved[static_cast<size_t>(i)] += 1e-3f;
    const std::vector<float> up = *backend->Forward({"critic", moved, prepared.critic_input(), rows});
    moved[static_cast<size_t>(i)] -= 2e-3f;
    const std::vector<float> down = *backend->Forward({"critic", moved, prepared.critic_input(), rows});
    double slope = 0;
    for (size_t r = 0; r < rows.size(); ++r) slope += (up[r] - down[r]) / 2e-3;
    EXPECT_NEAR(gradients[static_cast<size_t>(i)], slope, 2e-3);
  }
  // The actor's own head is nothing of the critic's.
  const auto& head = *layout.Find("actor.2.weight");
  EXPECT_TRUE(IsZero({gradients.begin() + head.offset, gradients.begin() + head.offset + head.count}));
}

TEST(TorchSharedTest, RowsAloneDoNotSayWhatACoreRemembers) {
  const policy::PolicySpec spec = SharedSpec(/*with_core=*/true);
  const FlatParameters parameters = InitialParameters(spec, 3);
  const auto backend = MakeHost(spec);
  const std::vector<int32_t> rows = {0};
  EXPECT_EQ(backend->Forward({"critic", parameters.values(), {}, rows}).status(),
            absl::UnimplementedError("rows alone do not say what the critic, a network with a core, remembers"));
}

TEST(TorchSharedTest, TheFusedBackEndSaysThatItDoesNot) {
  if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  EXPECT_EQ(MakeFusedBackend(policy::SharedSpecForTesting(), std::make_shared<ThreadTeam>(1)).status(),
            absl::UnimplementedError("the fused back end computes encoders of kind mlp, got shared for the critic"));
}

}  // namespace
}  // namespace troupe::training
