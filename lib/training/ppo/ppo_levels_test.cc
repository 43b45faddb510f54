// PPO's gradient from the losses that are compiled into the fused pass, and from Forward, derivatives worked out here
// in double precision, and Backward: equal to 1e-5 of the largest number of a tensor.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/ppo/ppo.h"
#include "lib/training/testing/random_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr int64_t kActions = 5;

policy::PolicySpec Spec() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = *space::Space::Discrete(kActions);
  spec.actor.hidden_sizes = {13, 8};
  spec.mutable_critic()->hidden_sizes = {9};
  spec.actor.output_gain = 1;
  spec.SetCriticInput(policy::NetworkInput::kJointObservation, 7);
  return spec;
}

class PpoLevelsTest : public testing::TestWithParam<std::tuple<VectorUnit, int>> {
 protected:
  void SetUp() override {
    const VectorUnit unit = std::get<0>(GetParam());
    if (unit == VectorUnit::kAvx2 && !base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
    if (unit == VectorUnit::kAvx512 && !base::ProcessorHasAvx512()) GTEST_SKIP() << base::kNoAvx512;
    auto made = MakeFusedBackend(Spec(), std::make_shared<ThreadTeam>(std::get<1>(GetParam())), unit);
    ASSERT_TRUE(made.ok()) << made.status();
    backend_ = *std::move(made);
    ASSERT_TRUE(backend_->Serves(BackendLevel::kForwardBackward).ok());
    ASSERT_TRUE(prepared_.Prepare(Spec(), {}, batch_.rows()).ok());
    const auto numbers = [this](std::vector<float>* column) {
      column->resize(static_cast<size_t>(prepared_.rows()));
      for (float& number : *column) number = static_cast<float>(random_.Normal());
    };
    numbers(&prepared_.targets.advantages);
    numbers(&prepared_.targets.value_targets);
    numbers(&prepared_.targets.old_values);
    const auto active = prepared_.active();
    rows_.assign(active.begin(), active.end());
    for (const int32_t row : rows_) critic_rows_.push_back(prepared_.critic_index()[static_cast<size_t>(row)]);
  }

  NetworkCall Call(const char* network) const {
    const bool is_actor = network == std::string("actor");
    return {network, parameters_.values(), is_actor ? prepared_.actor_input() : prepared_.critic_input(),
            is_actor ? rows_ : critic_rows_};
  }
  std::vector<float> Outputs(const NetworkCall& call) {
    const auto outputs = backend_->Forward(call);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return *outputs;
  }
  /// The derivatives of the loss by the logits, row by row.
  std::vector<float> ByLogits(const std::vector<float>& logits, const PpoOptions& options) const {
    const auto n = static_cast<double>(rows_.size());
    std::vector<float> result;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const auto row = static_cast<size_t>(rows_[i]);
      double total = 0;
      for (int64_t k = 0; k < kActions; ++k) total += std::exp(static_cast<double>(logits[i * kActions + k]));
      double log_p[kActions];
      double entropy = 0;
      for (int64_t k = 0; k < kActions; ++k) {
        log_p[k] = logits[i * kActions + k] - std::log(total);
        entropy -= std::exp(log_p[k]) * log_p[k];
      }
      const int32_t chosen = prepared_.actions[row].i32;
      const double ratio = std::exp(log_p[chosen] - prepared_.old_logp[row]);
      const double advantage = prepared_.targets.advantages[row];
      const double bounded = std::clamp(ratio, 1 - options.clip_param, 1 + options.clip_param) * advantage;
      const double by_logp = bounded < ratio * advantage ? 0 : -ratio * advantage / n;
      const double coefficient = options.entropy_coeff / n;
      for (int64_t k = 0; k < kActions; ++k) {
        const double p = std::exp(log_p[k]);
        result.push_back(
            static_cast<float>(by_logp * ((k == chosen ? 1 : 0) - p) + coefficient * p * (log_p[k] + entropy)));
      }
    }
    return result;
  }
  std::vector<float> ByValues(const std::vector<float>& values, const PpoOptions& options) const {
    std::vector<float> result;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const auto row = static_cast<size_t>(rows_[i]);
      const double target = prepared_.targets.value_targets[row];
      const double old = prepared_.targets.old_values[row];
      const double moved = std::clamp(values[i] - old, -options.value_clip_param, options.value_clip_param);
      const double free = values[i] - target;
      const double clipped = old + moved - target;
      const bool binds = clipped * clipped > free * free;
      const bool outside = std::abs(values[i] - old) > options.value_clip_param;
      const double slope = binds ? (outside ? 0 : clipped) : free;
      result.push_back(static_cast<float>(options.value_loss_coeff * slope / static_cast<double>(rows_.size())));
    }
    return result;
  }

  base::PhiloxSequence random_{base::PhiloxKey::Make(3, base::RandomStream::kTest), {}};
  RandomBatch batch_{Spec(), {31, 50, 7, 40, 100}, 5, /*inactive_rows=*/true};
  PreparedBatch prepared_;
  FlatParameters parameters_ = InitialParameters(Spec(), 2);
  std::unique_ptr<NetworkBackend> backend_;
  std::vector<int32_t> rows_, critic_rows_;
};

TEST_P(PpoLevelsTest, BackwardOfDerivativesByOutputsIsTheGradientOfTheLossOfRows) {
  PpoOptions options;
  options.use_value_clip = true;
  options.value_loss_coeff = 0.7;
  options.entropy_coeff = 0.05;
  std::vector<float> gradients(static_cast<size_t>(parameters_.size()), 0.0f);
  const std::vector<float> by_logits = ByLogits(Outputs(Call("actor")), options);
  const std::vector<float> by_values = ByValues(Outputs(Call("critic")), options);
  ASSERT_TRUE(backend_->Backward(Call("actor"), by_logits, absl::MakeSpan(gradients)).ok());
  ASSERT_TRUE(backend_->Backward(Call("critic"), by_values, absl::MakeSpan(gradients)).ok());

  StepSettings settings;
  settings.value_loss_coeff = options.value_loss_coeff;
  settings.entropy_coeff = options.entropy_coeff;
  settings.loss = PpoLossCall(options);
  ASSERT_TRUE(backend_->Begin(prepared_, &parameters_, NetworkBackend::kWholeTeam).ok());
  ASSERT_TRUE(backend_->BeginEpoch(rows_).ok());
  ASSERT_TRUE(backend_->Step(0, static_cast<int64_t>(rows_.size()), settings).ok());
  EXPECT_EQ(backend_->TakeTotals()->steps, 1);
  ASSERT_TRUE(backend_->End().ok());
  for (const policy::ParameterEntry& entry : parameters_.layout().entries()) {
    double largest = 0;
    double difference = 0;
    for (int64_t i = entry.offset; i < entry.offset + entry.count; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(parameters_.gradients()[i])));
      difference = std::max(difference, std::abs(static_cast<double>(parameters_.gradients()[i]) - gradients[i]));
    }
    EXPECT_GT(largest, 1e-4) << entry.name;
    EXPECT_LE(difference, 1e-5 * largest) << entry.name;
  }
}

// A sum of outputs is what Backward differentiates by the inputs: against differences of Forward, which a float has to
// about a thousandth.
TEST_P(PpoLevelsTest, BackwardGivesTheDerivativesByTheInputs) {
  const NetworkCall call = Call("critic");
  const std::vector<float> ones(critic_rows_.size(), 1.0f);
  const auto columns = static_cast<size_t>(call.inputs.columns);
  std::vector<float> gradients(static_cast<size_t>(parameters_.size()), 0.0f);
  std::vector<float> by_inputs(critic_rows_.size() * columns, 0.0f);
  ASSERT_TRUE(backend_->Backward(call, ones, absl::MakeSpan(gradients), absl::MakeSpan(by_inputs)).ok());

  std::vector<float> moved(call.inputs.data, call.inputs.data + call.inputs.rows * call.inputs.stride);
  NetworkCall near = call;
  near.inputs.data = moved.data();
  constexpr float kStep = 1e-2f;
  double largest = 0;
  for (size_t column = 0; column < columns; ++column) {
    const auto shifted = [&](float by) {
      for (int64_t row = 0; row < call.inputs.rows; ++row) {
        const size_t at = static_cast<size_t>(row * call.inputs.stride) + column;
        moved[at] = call.inputs.data[at] + by;
      }
      std::vector<float> outputs = Outputs(near);
      return outputs;
    };
    const std::vector<float> above = shifted(kStep);
    const std::vector<float> below = shifted(-kStep);
    shifted(0);
    for (size_t i = 0; i < critic_rows_.size(); ++i) {
      const double expected = (static_cast<double>(above[i]) - below[i]) / (2.0 * kStep);
      EXPECT_NEAR(by_inputs[i * columns + column], expected, 2e-3);
      largest = std::max(largest, std::abs(expected));
    }
  }
  EXPECT_GT(largest, 0.1);
}

TEST_P(PpoLevelsTest, ForwardIsOfTheBlockThatTheCallNames) {
  const std::vector<float> own = Outputs(Call("actor"));
  const FlatParameters target = InitialParameters(Spec(), 77);
  NetworkCall call = Call("actor");
  call.parameters = target.values();
  const std::vector<float> of_target = Outputs(call);
  EXPECT_NE(own, of_target);
  parameters_ = InitialParameters(Spec(), 77);
  EXPECT_EQ(Outputs(Call("actor")), of_target);
  // The same rows one by one.
  call = Call("actor");
  for (size_t i = 0; i < 3; ++i) {
    call.rows = absl::MakeConstSpan(rows_).subspan(i, 1);
    EXPECT_THAT(Outputs(call), testing::ElementsAreArray(&of_target[i * kActions], kActions));
  }
}

TEST_P(PpoLevelsTest, SaysWhatDoesNotFit) {
  NetworkCall call = Call("actor");
  call.network = "mixer";
  EXPECT_EQ(backend_->Forward(call).status(),
            absl::InvalidArgumentError("the policy has no network \"mixer\"; expected actor or critic"));
  call = Call("actor");
  call.inputs = prepared_.critic_input();
  EXPECT_EQ(backend_->Forward(call).status(),
            absl::InvalidArgumentError("inputs of the actor have 7 columns; expected 3"));
  call = Call("actor");
  call.parameters = call.parameters.subspan(1);
  EXPECT_EQ(backend_->Forward(call).status().code(), absl::StatusCode::kInvalidArgument);
  std::vector<float> gradients(static_cast<size_t>(parameters_.size()), 0.0f);
  EXPECT_EQ(backend_->Backward(Call("actor"), {1.0f}, absl::MakeSpan(gradients)),
            absl::InvalidArgumentError(
                absl::StrCat("gradients of outputs of the actor are 1 numbers; expected ", rows_.size() * kActions)));
}

INSTANTIATE_TEST_SUITE_P(Units, PpoLevelsTest,
                         testing::Combine(testing::Values(VectorUnit::kAvx2, VectorUnit::kAvx512),
                                          testing::Values(1, 3)),
                         [](const testing::TestParamInfo<PpoLevelsTest::ParamType>& info) {
                           return absl::StrCat(std::get<0>(info.param) == VectorUnit::kAvx2 ? "Avx2_" : "Avx512_",
                                               std::get<1>(info.param));
                         });

}  // namespace
}  // namespace troupe::training
