// The fused kernels against LibTorch's autograd over the models, heads and sizes that both serve: one minibatch step
// from the same weights must give the same losses, gradients and values to 1e-5, relative to the largest number of a
// tensor. Sizes are chosen to meet every remainder of the kernels' tiles, panels and blocks.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lib/training/fused_backend.h"
#include "lib/training/ppo_trainer.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/torch_backend.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr double kTolerance = 1e-5;
const policy::PolicySlot kSlot(0);

struct Case {
  std::string name;
  policy::PolicySpec spec;
  PpoOptions options;
  std::vector<int64_t> segments;
  bool inactive_rows = false;
};

policy::PolicySpec Spec(int64_t observation_size, std::vector<int64_t> actor, std::vector<int64_t> critic) {
  policy::PolicySpec spec;
  spec.id = policy::PolicyId("p");
  spec.observation_space = *space::Space::Box(-100, 100, {observation_size});
  spec.action_space = *space::Space::Discrete(5);
  spec.model.actor_hidden_sizes = std::move(actor);
  spec.model.critic_hidden_sizes = std::move(critic);
  spec.model.actor_output_gain = 1.0;  // or the actor's gradients would all be small
  return spec;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  {
    Case spread{"SimpleSpread", Spec(18, {64, 64}, {64, 64}), {}, std::vector<int64_t>(40, 25)};
    spread.spec.agent_id_size = 3;
    spread.spec.critic_input = policy::CriticInput::kJointObservation;
    spread.spec.critic_state_size = 57;
    spread.options.huber_delta = 10;
    cases.push_back(spread);
  }
  for (const policy::Activation activation : {policy::Activation::kRelu, policy::Activation::kElu,
                                              policy::Activation::kSigmoid, policy::Activation::kIdentity}) {
    Case one{
        "Activation_" + std::string(policy::ActivationName(activation)), Spec(7, {13, 22}, {9}), {}, {11, 30, 47, 5}};
    one.spec.model.activation = activation;
    cases.push_back(one);
  }
  {
    Case mixed{"MasksAndMixedActions", Spec(3, {6}, {31, 2}), {}, {100, 77, 3, 50}, /*inactive_rows=*/true};
    mixed.spec.action_space = *space::Space::Tuple(
        {*space::Space::MultiDiscrete({2, 7}), *space::Space::Box(-1, 1, {3}), *space::Space::MultiBinary(2)});
    mixed.spec.has_action_mask = true;
    mixed.options.use_value_clip = false;
    mixed.options.entropy_coeff = {0.05, 0.05, 0};
    cases.push_back(mixed);
  }
  {
    // 2000 units of activations a row: several blocks of panels a thread.
    Case wide{"WideLayers", Spec(40, {513, 300}, {1024}), {}, {200, 150, 301}};
    wide.options.huber_delta = 0.3;
    cases.push_back(wide);
  }
  for (const int64_t rows : {1, 7, 8, 9, 16, 17, 24, 25, 48, 49, 97}) {
    cases.push_back({"Rows" + std::to_string(rows), Spec(5, {8}, {8}), {}, {rows}});
  }
  return cases;
}

struct Outcome {
  std::vector<float> gradients;
  std::vector<std::pair<std::string, double>> metrics;
};

/// One step of all rows without clipping: Adam's first moment is then a tenth of the gradient.
Outcome Step(const Case& test, const PpoTrainer::BackendFactory& make) {
  PpoOptions options = test.options;
  options.num_epochs = 1;
  options.minibatch_size = 1 << 20;
  options.max_grad_norm = 0;
  const auto trainer = *PpoTrainer::Make({test.spec}, {options}, 5, make);
  RandomBatch batch(test.spec, test.segments, 9, test.inactive_rows);
  const auto reports = trainer->Update(batch.batch, {.seed = 1, .iteration = 0, .next_version = {1, 1}});
  EXPECT_TRUE(reports.ok()) << reports.status();
  EXPECT_EQ(reports->at(0).minibatch_steps, 1);
  Outcome outcome{trainer->ExportState(kSlot)->adam_exp_avg, reports->at(0).metrics};
  for (float& value : outcome.gradients) value *= 10;
  return outcome;
}

class FusedParityTest : public testing::TestWithParam<std::tuple<size_t, VectorUnit, int>> {};

TEST_P(FusedParityTest, OneStepEqualsAutograd) {
  const Case test = Cases()[std::get<0>(GetParam())];
  const VectorUnit unit = std::get<1>(GetParam());
  const int threads = std::get<2>(GetParam());
  const auto fused = [=](const policy::PolicySpec& spec) {
    return MakeFusedBackend(spec, std::make_shared<ThreadTeam>(threads), unit);
  };
  if (const absl::Status status = fused(test.spec).status(); absl::IsUnimplemented(status)) GTEST_SKIP() << status;
  const Outcome expected = Step(test, [](const policy::PolicySpec& spec) {
    return MakeTorchBackend(spec, DeviceKind::kCpu, OptimizerPlace::kHost, std::make_shared<ThreadTeam>(1));
  });
  const Outcome got = Step(test, fused);

  ASSERT_EQ(got.metrics.size(), expected.metrics.size());
  for (size_t i = 0; i < got.metrics.size(); ++i) {
    const double number = expected.metrics[i].second;
    EXPECT_NEAR(got.metrics[i].second, number, kTolerance * std::max(1.0, std::abs(number))) << got.metrics[i].first;
  }
  const policy::ParameterLayout layout = policy::ParameterLayout::For(test.spec);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    double largest = 0;
    double difference = 0;
    for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(expected.gradients[i])));
      difference = std::max(difference, std::abs(static_cast<double>(got.gradients[i]) - expected.gradients[i]));
    }
    EXPECT_LE(difference, kTolerance * std::max(largest, 1e-2)) << entry.name << " of largest " << largest;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FusedParityTest,
                         testing::Combine(testing::Range<size_t>(0, Cases().size()),
                                          testing::Values(VectorUnit::kAvx2, VectorUnit::kAvx512),
                                          testing::Values(1, 3)),
                         [](const testing::TestParamInfo<FusedParityTest::ParamType>& info) {
                           return Cases()[std::get<0>(info.param)].name +
                                  (std::get<1>(info.param) == VectorUnit::kAvx2 ? "_Avx2_" : "_Avx512_") +
                                  std::to_string(std::get<2>(info.param));
                         });

}  // namespace
}  // namespace troupe::training
