// Log-probabilities and entropies of single elements of actions, far into the tails, and their derivatives by
// what the actor's last layer says, against torch.distributions in double precision (distribution_reference.py made
// distribution_reference.json): what the actor adds up of them, and every back end of the trainer. All weights are
// zero, so that the networks' outputs are the biases of their last layers. Updates stand in ppo_parity_test.cc.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lib/inference/continuous_head.h"
#include "lib/policy/testing.h"
#include "lib/training/a2c/a2c.h"
#include "tests/parity/update_parity.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

const json& Elements() {
  static const json& elements = *new json(ReadRecord("distribution_reference.json")["elements"]);
  return elements;
}

/// An element of a MultiBinary space, which is a categorical part of two.
bool IsBit(const json& element) { return element["kind"] == "bernoulli"; }

policy::ContinuousDistribution KindOf(const json& element) {
  return ContinuousDistributionOf(element["kind"].get<std::string>());
}

std::string TextOf(const json& element) {
  return absl::StrCat(element["kind"].get<std::string>(), " ", element["outputs"].dump(), " at ",
                      element["action"].get<double>());
}

/// 1e-5 of the largest of these numbers, or of `least`.
double Tolerance(const std::vector<double>& numbers, double least) {
  double largest = least;
  for (const double number : numbers) largest = std::max(largest, std::abs(number));
  return 1e-5 * largest;
}

TEST(ActorDistributionParityTest, LogProbabilities) {
  for (const json& element : Elements()) {
    if (IsBit(element)) continue;
    const auto action = element["action"].get<float>();
    const auto outputs = element["outputs"].get<std::vector<float>>();
    const float log_std = std::clamp(outputs[1], -20.0f, 5.0f);
    double logp = 0;
    switch (KindOf(element)) {
      case policy::ContinuousDistribution::kGaussian:
        logp = inference::GaussianLogp(action, outputs[0], log_std);
        break;
      case policy::ContinuousDistribution::kSquashedGaussian:
        logp = double{inference::GaussianLogp(action, outputs[0], log_std)} - inference::LogSlopeOfTanh(action);
        break;
      case policy::ContinuousDistribution::kBeta:
        logp = inference::BetaLogp(action, outputs[0], outputs[1]);
        break;
    }
    const auto expected = element["logp"].get<double>();
    EXPECT_NEAR(logp, expected, Tolerance({expected}, 1)) << TextOf(element);
  }
}

/// Of a minibatch of one row.
struct RowTerms {
  double policy_loss = 0;
  double entropy = 0;
  std::vector<double> gradients;  ///< by both outputs
};

class DistributionParityTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (Backends()[GetParam()].missing != nullptr) GTEST_SKIP() << Backends()[GetParam()].missing;
  }

  static policy::PolicySpec SpecOf(policy::ContinuousDistribution kind, bool is_free) {
    policy::PolicySpec spec = policy::SmallSpecForTesting();
    spec.action_space = *space::Space::Box(-1, 1, {1});
    policy::SetDistributionForTesting(kind, &spec);
    spec.free_log_std = is_free;
    return spec;
  }

  /// Policy loss -advantage logp, less entropy_coeff times the entropy.
  static RowTerms StepOn(const policy::PolicySpec& spec, const json& element, float advantage, double entropy_coeff) {
    learner::OwnedTrainBatch batch;
    batch.obs.assign(3, 0.5f);
    batch.actions.resize(1);
    if (IsBit(element)) {
      batch.actions[0].i32 = element["action"].get<int32_t>();
    } else {
      batch.actions[0].f32 = element["action"].get<float>();
    }
    batch.logp = {0};
    batch.rewards = {0};
    learner::PolicyTrainBatch part;
    part.rows = 1;
    part.segments = {{0, 1}};
    batch.Add(std::move(part));
    PreparedBatch prepared;
    EXPECT_TRUE(prepared.Prepare(spec, {}, batch.batch.policies[0]).ok());
    prepared.targets.advantages = {advantage};
    prepared.targets.value_targets = {0};
    prepared.targets.old_values = {0};

    FlatParameters parameters{policy::ParameterLayout::For(spec)};
    // Where the two outputs stand: both in the last bias, or the second in log_std.
    std::vector<int64_t> places = {parameters.layout().Find("actor.2.bias")->offset};
    const policy::ParameterEntry* const log_std = parameters.layout().Find("actor.log_std");
    places.push_back(log_std == nullptr ? places[0] + 1 : log_std->offset);
    for (size_t i = 0; i < 2; ++i) {
      parameters.values()[static_cast<size_t>(places[i])] = element["outputs"][i].get<float>();
    }
    const auto backend = Backends()[GetParam()].make(spec);
    EXPECT_TRUE(backend.ok()) << backend.status();
    EXPECT_TRUE((*backend)->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
    EXPECT_TRUE((*backend)->BeginEpoch(prepared.active()).ok());
    StepSettings settings;
    settings.loss = A2cLossCall();
    settings.entropy_coeff = entropy_coeff;
    settings.max_grad_norm = 0;
    EXPECT_TRUE((*backend)->Step(0, 1, settings).ok());
    const StepTotals totals = *(*backend)->TakeTotals();
    EXPECT_TRUE((*backend)->End().ok());
    EXPECT_EQ(totals.steps, 1) << TextOf(element);
    RowTerms terms{totals.policy_loss, totals.entropy, {}};
    // Adam's first moment after one step.
    for (const int64_t place : places) {
      terms.gradients.push_back(parameters.exp_avg()[static_cast<size_t>(place)] / (1 - settings.adam_beta1));
    }
    return terms;
  }

  static void ExpectTerms(const policy::PolicySpec& spec, const json& element) {
    const auto expect = [&](const char* what, const std::vector<double>& got, const std::vector<double>& expected,
                            double least) {
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(got[i], expected[i], Tolerance(expected, least)) << what << " " << i << " of " << TextOf(element);
      }
    };
    const RowTerms by_logp = StepOn(spec, element, 1, 0);
    expect("logp", {-by_logp.policy_loss}, {element["logp"].get<double>()}, 1);
    expect("entropy", {by_logp.entropy}, {element["entropy"].get<double>()}, 1);
    const auto negated = [](const json& numbers) {
      auto result = numbers.get<std::vector<double>>();
      for (double& number : result) number = -number;
      return result;
    };
    expect("derivative of logp by", by_logp.gradients, negated(element["by_logp"]), 1e-1);
    const RowTerms by_entropy = StepOn(spec, element, 0, 1);
    expect("derivative of entropy by", by_entropy.gradients, negated(element["by_entropy"]), 1e-1);
  }
};

TEST_P(DistributionParityTest, WhatTheLastLayerSays) {
  for (const json& element : Elements()) {
    if (!IsBit(element)) ExpectTerms(SpecOf(KindOf(element), /*is_free=*/false), element);
  }
}

TEST_P(DistributionParityTest, BitsAreBernoullis) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = *space::Space::MultiBinary(1);
  size_t bits = 0;
  for (const json& element : Elements()) {
    if (!IsBit(element)) continue;
    ++bits;
    ExpectTerms(spec, element);
  }
  EXPECT_EQ(bits, 8u);
}

TEST_P(DistributionParityTest, FreeDeviations) {
  for (const json& element : Elements()) {
    if (IsBit(element) || KindOf(element) == policy::ContinuousDistribution::kBeta) continue;
    ExpectTerms(SpecOf(KindOf(element), /*is_free=*/true), element);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DistributionParityTest, testing::Range<size_t>(0, Backends().size()),
                         [](const auto& info) { return std::string(Backends()[info.param].name); });

}  // namespace
}  // namespace troupe::training
