#include "lib/training/a2c/a2c.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/philox.h"
#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/registry.h"
#include "lib/training/testing/random_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::FloatNear;

const policy::PolicySlot kSlot(0);

absl::StatusOr<std::unique_ptr<TrainerHost>> Make(const policy::PolicySpec& spec, const A2cOptions& options,
                                                  int threads = 1) {
  const auto team = std::make_shared<ThreadTeam>(threads);
  return TrainerHost::Make({spec}, {A2cSpec(options)}, {.seed = 1, .team = team}, &FindAlgorithm,
                           [team](const policy::PolicySpec& of) { return MakeFusedBackend(of, team); });
}

learner::UpdateContext Context(int64_t iteration) {
  return {.seed = 1, .iteration = iteration, .env_steps = 0, .next_version = {1, iteration + 1}};
}

class A2cTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }
};

// Two rows of a policy whose weights are zero: each of its two actions has probability 1/2, the critic says 1.
TEST_F(A2cTest, LossesAndDerivativesByHand) {
  const policy::PolicySpec spec = policy::SmallSpecForTesting();
  RandomBatch batch(spec, {2}, 1);
  batch.actions[0].i32 = 0;
  batch.actions[1].i32 = 1;
  PreparedBatch prepared;
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows()).ok());
  prepared.targets.advantages = {2, -1};
  prepared.targets.value_targets = {3, 1.5f};
  prepared.targets.old_values = {100,
                                 100};  // which it does not look at, nor at what the batch says of log-probabilities
  FlatParameters parameters{policy::ParameterLayout::For(spec)};
  const auto entry = [&](const char* name, absl::Span<float> all) {
    const policy::ParameterEntry* found = parameters.layout().Find(name);
    return all.subspan(static_cast<size_t>(found->offset), static_cast<size_t>(found->count));
  };
  entry("critic.1.bias", parameters.values())[0] = 1;
  const auto backend = *MakeFusedBackend(spec, std::make_shared<ThreadTeam>(1));
  StepSettings settings;
  settings.value_loss_coeff = 0.5;
  settings.loss = A2cLossCall();
  ASSERT_TRUE(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
  ASSERT_TRUE(backend->BeginEpoch(prepared.active()).ok());
  ASSERT_TRUE(backend->Step(0, 2, settings).ok());
  const StepTotals totals = *backend->TakeTotals();
  ASSERT_TRUE(backend->End().ok());
  // -(2 log 1/2 - log 1/2) = log 2.
  EXPECT_THAT(totals.policy_loss, DoubleNear(std::log(2.0), 1e-6));
  EXPECT_THAT(totals.entropy, DoubleNear(2 * std::log(2.0), 1e-6));
  // (2^2 + 0.5^2) / 2.
  EXPECT_THAT(totals.value_loss, DoubleNear(2.125, 1e-6));
  // -A ([k chosen] - 1/2) by logit, the mean over rows: (-1, 1) and (-1/2, 1/2).
  const absl::Span<float> logits = entry("actor.2.bias", parameters.gradients());
  EXPECT_THAT(std::vector<float>(logits.begin(), logits.end()),
              ElementsAre(FloatNear(-0.75f, 1e-6f), FloatNear(0.75f, 1e-6f)));
  // 0.5 x the mean of -2 and -0.5.
  EXPECT_NEAR(entry("critic.1.bias", parameters.gradients())[0], -0.625, 1e-6);
}

TEST_F(A2cTest, OnePassOverABatch) {
  RandomBatch batch(policy::SmallSpecForTesting(), {7, 9, 5, 12, 4, 8, 10}, 1);  // 55 rows
  const auto report = [&](int64_t minibatch_size) {
    A2cOptions options;
    options.minibatch_size = minibatch_size;
    const auto trainer = *Make(policy::SmallSpecForTesting(), options);
    const auto reports = trainer->Update(batch.batch, Context(0));
    EXPECT_TRUE(reports.ok()) << reports.status();
    return reports->at(0);
  };
  const learner::PolicyUpdateReport whole = report(0);
  EXPECT_EQ(whole.epochs, 1);
  EXPECT_EQ(whole.minibatch_steps, 1);
  EXPECT_EQ(whole.trained_rows, 55);
  EXPECT_EQ(report(16).minibatch_steps, 4);  // 16 + 16 + 16 + 7
  std::map<std::string, double> metrics(whole.metrics.begin(), whole.metrics.end());
  EXPECT_EQ(metrics.count("Loss/Policy loss"), 1u);
  EXPECT_EQ(metrics.count("Policy/Explained variance"), 1u);
  EXPECT_EQ(metrics.count("Policy/KL"), 0u) << "there is no ratio";
}

TEST_F(A2cTest, AFrozenCriticKeepsTheUnitsThatItSpeaksIn) {
  RandomBatch batch(policy::SmallSpecForTesting(), {7, 9, 5}, 1);
  for (const bool is_frozen : {true, false}) {
    A2cOptions options;
    if (is_frozen) options.frozen_parameters = {"critic.*"};
    const auto trainer = *Make(policy::SmallSpecForTesting(), options);
    ASSERT_TRUE(trainer->Update(batch.batch, Context(0)).ok());
    EXPECT_EQ(trainer->ExportState(kSlot)->Moments(policy::kValueMoments).count, is_frozen ? 0 : 21);
  }
  A2cOptions half;
  half.use_value_norm = false;
  half.use_popart = true;
  half.frozen_parameters = {"critic.*.bias"};
  EXPECT_THAT(std::string(Make(policy::SmallSpecForTesting(), half).status().message()),
              testing::HasSubstr("expected both or none with use_popart"));
}

TEST_F(A2cTest, WhatActedIsNotAsked) {
  const auto parameters = [](float logp) {
    RandomBatch batch(policy::SmallSpecForTesting(), {7, 9, 5}, 1);
    std::fill(batch.logp.begin(), batch.logp.end(), logp);
    const auto trainer = *Make(policy::SmallSpecForTesting(), {});
    EXPECT_TRUE(trainer->Update(batch.batch, Context(0)).ok());
    return trainer->ExportState(kSlot)->parameters();
  };
  EXPECT_EQ(parameters(-0.1f), parameters(-5.0f));
}

// Three arms, of which one pays, pulled as the policy says.
TEST_F(A2cTest, LearnsWhichArmPays) {
  constexpr int64_t kArms = 3;
  constexpr size_t kPulls = 100;
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = *space::Space::Discrete(kArms);
  A2cOptions options;
  options.learning_rate = 2e-2;
  for (const int threads : {1, 2}) {
    const auto trainer = *Make(spec, options, threads);
    const auto acting = *MakeFusedBackend(spec, std::make_shared<ThreadTeam>(1));
    base::PhiloxSequence random(base::PhiloxKey::Make(7, base::RandomStream::kTest), {});
    double share = 0;
    for (int64_t iteration = 0; iteration < 40; ++iteration) {
      RandomBatch batch(spec, std::vector<int64_t>(kPulls, 1), static_cast<uint64_t>(iteration));
      for (learner::TrainSegment& segment : batch.rows().segments) segment.final_row = -1;
      PreparedBatch prepared;
      ASSERT_TRUE(prepared.Prepare(spec, {}, batch.rows()).ok());
      const policy::PolicyState state = *trainer->ExportState(kSlot);
      const std::vector<float> logits =
          *acting->Forward({"actor", state.parameters(), prepared.actor_input(), prepared.active()});
      share = 0;
      for (size_t row = 0; row < kPulls; ++row) {
        double total = 0;
        for (int64_t k = 0; k < kArms; ++k) total += std::exp(static_cast<double>(logits[row * kArms + k]));
        double left = random.Uniform() * total;
        int32_t arm = 0;
        while (arm < kArms - 1 && (left -= std::exp(static_cast<double>(logits[row * kArms + arm]))) > 0) ++arm;
        batch.actions[row].i32 = arm;
        batch.rewards[row] = arm == 1 ? 1.0f : 0.0f;
        share += arm == 1 ? 1.0 / kPulls : 0;
      }
      ASSERT_TRUE(trainer->Update(batch.batch, Context(iteration)).ok());
    }
    EXPECT_GT(share, 0.9) << "by chance it were a third";
  }
}

TEST(A2cOptionsTest, AreReadByTheirKeys) {
  const A2cOptions defaults = *ParseA2cOptions({.name = "a2c"});
  EXPECT_FALSE(defaults.use_advnorm);
  EXPECT_EQ(defaults.minibatch_size, 0);
  EXPECT_TRUE(FindAlgorithm("a2c").value()->FormOf({.name = "a2c"}).value().value_moments);

  A2cOptions options;
  options.minibatch_size = 12;
  options.use_value_norm = false;
  options.gamma = 0.5;
  policy::AlgorithmSpec spec = A2cSpec(options);
  EXPECT_EQ(A2cSpec(*ParseA2cOptions(spec)), spec);
  spec.options["entropy_coeff"] = policy::ScheduleValue{0.5, 0.25, 10};
  const A2cOptions read = *ParseA2cOptions(spec, {.env_steps = 5});
  EXPECT_EQ(read.minibatch_size, 12);
  EXPECT_EQ(read.gamma, 0.5);
  EXPECT_EQ(read.entropy_coeff, 0.375);
  EXPECT_FALSE(FindAlgorithm("a2c").value()->FormOf(spec).value().value_moments);
}

TEST(A2cOptionsTest, RefusesWhatItDoesNotKnow) {
  const auto message = [](const char* key, policy::OptionValue value) {
    const auto parsed = ParseA2cOptions({.name = "a2c", .options = {{key, std::move(value)}}});
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(parsed.status().message());
  };
  EXPECT_THAT(message("clip_param", 0.2), testing::HasSubstr("algorithm \"a2c\" has no such option"));
  EXPECT_THAT(message("num_epochs", int64_t{2}), testing::HasSubstr("num_epochs"));
  EXPECT_EQ(message("gamma", 2.0), "algorithm.gamma is 2; expected a number in [0, 1]");
  EXPECT_EQ(message("minibatch_size", int64_t{-1}), "algorithm.minibatch_size is -1; expected at least 1, or auto");
}

}  // namespace
}  // namespace troupe::training
