// What options make of an update and of a policy's state: optimizers, rates and coefficients that follow the KL
// divergence, frozen parameters.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include "lib/training/testing/small_update.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;

const policy::PolicySlot kSlot(0);

policy::PolicySpec Spec(const std::string& id = "p") {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.id = policy::PolicyId(id);
  spec.action_space = *space::Space::Discrete(4);
  return spec;
}

class PpoOptionsAtWorkTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }

  std::unique_ptr<TrainerHost> Make(const PpoOptions& options, std::vector<policy::PolicySpec> specs = {Spec()},
                                    const PolicyStoreOptions& store = {}) {
    const std::vector<PpoOptions> by_slot(specs.size(), options);
    auto host = MakePpoHost(
        std::move(specs), by_slot, 1, [this](const policy::PolicySpec& spec) { return MakeFusedBackend(spec, team_); },
        team_, tensor::TensorAllocator::Pageable(), store);
    EXPECT_TRUE(host.ok()) << host.status();
    return *std::move(host);
  }

  std::map<std::string, double> Update(TrainerHost* host, int64_t iteration) {
    const auto reports = host->Update(batch_.batch, SmallUpdateContext(iteration));
    EXPECT_TRUE(reports.ok()) << reports.status();
    return {reports->at(0).metrics.begin(), reports->at(0).metrics.end()};
  }

  static double Number(const policy::PolicyState& state, const char* name) {
    const std::vector<double>& values = state.Doubles(name);
    EXPECT_EQ(values.size(), 1u) << name;
    return values.empty() ? 0 : values[0];
  }

  const std::shared_ptr<ThreadTeam> team_ = std::make_shared<ThreadTeam>(2);
  RandomBatch batch_{Spec(), kSmallUpdateSegments, 1};
};

TEST_F(PpoOptionsAtWorkTest, AnAdaptiveRateIsInTheStateAndGoesOnFromThere) {
  PpoOptions options = SmallUpdateOptions();
  options.rate = {.lr_kl_target = 1e-6, .lr_kl_step = 1.25};
  const auto whole = Make(options);
  EXPECT_EQ(Number(*whole->ExportState(kSlot), kLearningRate), 1e-3);
  const std::map<std::string, double> metrics = Update(whole.get(), 0);
  const policy::PolicyState half = *whole->ExportState(kSlot);
  EXPECT_NEAR(Number(half, kLearningRate), 1e-3 / (1.25 * 1.25 * 1.25), 1e-12) << "each epoch moved too far";
  EXPECT_EQ(metrics.at("Policy/Learning rate"), Number(half, kLearningRate));
  EXPECT_EQ(metrics.at("Policy/Critic learning rate"), Number(half, kLearningRate));
  const auto resumed = Make(options);
  ASSERT_TRUE(resumed->ImportState(half, kSlot).ok());
  Update(whole.get(), 1);
  Update(resumed.get(), 1);
  policy::ExpectSameBits(*whole->ExportState(kSlot), *resumed->ExportState(kSlot));
}

TEST_F(PpoOptionsAtWorkTest, AnAdaptiveRateGoesByTheLastEpochAlone) {
  PpoOptions options = SmallUpdateOptions();
  options.learning_rate = 5e-3;
  options.rate = {.lr_kl_target = 1, .lr_kl_factor = 1, .lr_kl_step = 1};  // stays
  double kl[2];
  for (const int epochs : {1, 2}) {
    options.num_epochs = epochs;
    kl[epochs - 1] = Update(Make(options).get(), 0).at("Policy/KL");
  }
  ASSERT_GT(std::abs(kl[1] - kl[0]), 0.005 * kl[0]);
  // Between the second epoch and the mean of both: there and back again. By steps too small to change the epochs.
  options.rate = {.lr_kl_target = 0.25 * kl[0] + 0.75 * kl[1], .lr_kl_factor = 1, .lr_kl_step = 1.0001};
  const auto host = Make(options);
  Update(host.get(), 0);
  EXPECT_NEAR(Number(*host->ExportState(kSlot), kLearningRate), 5e-3, 1e-9);
}

TEST_F(PpoOptionsAtWorkTest, CriticLrStaysWhereItIsSaid) {
  PpoOptions options = SmallUpdateOptions();
  options.rate.lr_kl_target = 1e-6;
  options.critic_learning_rate = 5e-4;
  const auto host = Make(options);
  const std::map<std::string, double> metrics = Update(host.get(), 0);
  EXPECT_LT(metrics.at("Policy/Learning rate"), 1e-3);
  EXPECT_EQ(metrics.at("Policy/Critic learning rate"), 5e-4);
}

TEST_F(PpoOptionsAtWorkTest, AKlCoefficientIsInTheStateAndGoesOnFromThere) {
  PpoOptions options = SmallUpdateOptions();
  options.penalty = {.use_kl_loss = true, .kl_coeff = 0.5, .kl_target = 1e-6};
  const auto whole = Make(options);
  const std::map<std::string, double> metrics = Update(whole.get(), 0);
  EXPECT_EQ(metrics.at("Policy/KL coefficient"), 0.5) << "the one that was used";
  EXPECT_GT(metrics.at("Loss/KL loss"), 0);
  const policy::PolicyState half = *whole->ExportState(kSlot);
  EXPECT_EQ(Number(half, kKlCoeff), 0.75);
  const auto resumed = Make(options);
  ASSERT_TRUE(resumed->ImportState(half, kSlot).ok());
  Update(whole.get(), 1);
  Update(resumed.get(), 1);
  policy::ExpectSameBits(*whole->ExportState(kSlot), *resumed->ExportState(kSlot));
  EXPECT_EQ(Number(*whole->ExportState(kSlot), kKlCoeff), 0.75 * 1.5);
}

TEST_F(PpoOptionsAtWorkTest, AnEpochWithoutAStepSaysNothingOfTheKlCoefficient) {
  PpoOptions options = SmallUpdateOptions();
  options.penalty = {.use_kl_loss = true, .kl_coeff = 0.5, .kl_target = 1e-6};
  options.num_epochs = 2;
  options.minibatch_size = 1000;
  options.critic_learning_rate = 1e30;  // its loss is not finite after the first step
  const auto host = Make(options);
  EXPECT_EQ(Update(host.get(), 0).at("Policy/Skipped steps"), 1);
  const policy::PolicyState state = *host->ExportState(kSlot);
  EXPECT_EQ(state.Integer(kAdamSteps), 1);
  EXPECT_EQ(Number(state, kKlCoeff), 0.5);
}

TEST_F(PpoOptionsAtWorkTest, WithoutThemTheStateHasNoSuchBlocks) {
  PpoOptions options = SmallUpdateOptions();
  options.penalty = {.use_kl_loss = true, .kl_target = 0};
  for (const PpoOptions& each : {SmallUpdateOptions(), options}) {
    const auto host = Make(each);
    Update(host.get(), 0);
    for (const char* name : {kLearningRate, kKlCoeff, kOptimizer}) {
      EXPECT_EQ(host->ExportState(kSlot)->Find(name), nullptr) << name;
    }
  }
  // Numbers of another run's are not kept where nothing follows them.
  const auto host = Make(SmallUpdateOptions());
  policy::PolicyState state = *host->ExportState(kSlot);
  state.SetNumber(kKlCoeff, 3);
  ASSERT_TRUE(host->ImportState(state, kSlot).ok());
  EXPECT_EQ(host->ExportState(kSlot)->Find(kKlCoeff), nullptr);
  state.Set(kKlCoeff, std::vector<float>{1});
  EXPECT_THAT(std::string(host->ImportState(state, kSlot).message()),
              HasSubstr("block \"kl_coeff\" is f32 [1], expected f64 []"));
}

TEST_F(PpoOptionsAtWorkTest, AnEvictedPolicyKeepsItsNumbersAndMoments) {
  PpoOptions options = SmallUpdateOptions();
  options.optimizer = OptimizerKind::kRmsprop;
  options.momentum = 0.5;
  options.rate.lr_kl_target = 1e-6;
  const std::vector<policy::PolicySpec> specs = {Spec("p"), Spec("q"), Spec("r")};
  learner::TrainBatch all = batch_.batch;
  for (int32_t slot = 1; slot < 3; ++slot) {
    all.policies.push_back(batch_.rows());
    all.policies.back().policy = policy::PolicySlot(slot);
  }
  const auto resident = Make(options, specs);
  const auto evicted = Make(options, specs, {.capacity = 1});
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(resident->Update(all, SmallUpdateContext(i)).ok());
    ASSERT_TRUE(evicted->Update(all, SmallUpdateContext(i)).ok());
  }
  for (int32_t slot = 0; slot < 3; ++slot) {
    const policy::PolicyState state = *evicted->ExportState(policy::PolicySlot(slot));
    policy::ExpectSameBits(*resident->ExportState(policy::PolicySlot(slot)), state);
    EXPECT_EQ(state.Integer(kOptimizer), 3);
    EXPECT_LT(Number(state, kLearningRate), 1e-3);
  }
}

TEST_F(PpoOptionsAtWorkTest, AnotherOptimizersMomentsBeginAnew) {
  PpoOptions sgd = SmallUpdateOptions();
  sgd.optimizer = OptimizerKind::kSgd;
  sgd.momentum = 0.9;
  PpoOptions adamw = SmallUpdateOptions();
  adamw.optimizer = OptimizerKind::kAdamW;
  const auto adam = Make(SmallUpdateOptions());
  Update(adam.get(), 0);
  const policy::PolicyState state = *adam->ExportState(kSlot);
  // Adam and AdamW mean the same by their moments.
  const auto alike = Make(adamw);
  ASSERT_TRUE(alike->ImportState(state, kSlot).ok());
  policy::ExpectSameBits(*alike->ExportState(kSlot), state);

  const auto other = Make(sgd);
  ASSERT_TRUE(other->ImportState(state, kSlot).ok());
  const policy::PolicyState begun = *other->ExportState(kSlot);
  EXPECT_EQ(begun.parameters(), state.parameters());
  EXPECT_EQ(begun.Floats(kAdamExpAvg), std::vector<float>(state.parameters().size(), 0.0f));
  EXPECT_EQ(begun.Integer(kAdamSteps), 0);
  EXPECT_EQ(begun.Integer(kOptimizer), 4);
  Update(other.get(), 1);
  const policy::PolicyState after = *other->ExportState(kSlot);
  EXPECT_EQ(after.Floats(kAdamExpAvgSq), std::vector<float>(state.parameters().size(), 0.0f)) << "SGD has no squares";
  const auto back = Make(SmallUpdateOptions());
  ASSERT_TRUE(back->ImportState(after, kSlot).ok());
  EXPECT_EQ(back->ExportState(kSlot)->Integer(kAdamSteps), 0);
  EXPECT_EQ(back->ExportState(kSlot)->Find(kOptimizer), nullptr);
}

TEST_F(PpoOptionsAtWorkTest, FrozenParametersStayWhateverTheOptimizer) {
  for (const OptimizerKind kind :
       {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kRmsprop, OptimizerKind::kSgd}) {
    PpoOptions options = SmallUpdateOptions();
    options.optimizer = kind;
    options.weight_decay = 0.1;
    options.frozen_parameters = {"actor.0.*", "critic.1.bias"};
    const auto host = Make(options);
    const policy::PolicyState before = *host->ExportState(kSlot);
    Update(host.get(), 0);
    const policy::PolicyState after = *host->ExportState(kSlot);
    const policy::ParameterLayout layout = policy::ParameterLayout::For(Spec());
    for (const policy::ParameterEntry& entry : layout.entries()) {
      const bool is_frozen =
          entry.name == "actor.0.weight" || entry.name == "actor.0.bias" || entry.name == "critic.1.bias";
      const bool stayed = std::equal(before.parameters().begin() + entry.offset,
                                     before.parameters().begin() + entry.offset + entry.count,
                                     after.parameters().begin() + entry.offset);
      EXPECT_EQ(stayed, is_frozen) << entry.name << " with optimizer " << static_cast<int>(kind);
    }
  }
}

TEST_F(PpoOptionsAtWorkTest, AFrozenNetworkDoesNotCountInTheNorm) {
  PpoOptions options = SmallUpdateOptions();
  options.frozen_parameters = {"critic.*"};
  const auto host = Make(options);
  EXPECT_EQ(Update(host.get(), 0).at("Policy/Critic gradient norm"), 0);
}

TEST_F(PpoOptionsAtWorkTest, AGlobThatMatchesNothingIsRefused) {
  PpoOptions options = SmallUpdateOptions();
  options.frozen_parameters = {"actr.0.*"};
  const auto host = MakePpoHost({Spec()}, {options}, 1,
                                [this](const policy::PolicySpec& spec) { return MakeFusedBackend(spec, team_); });
  EXPECT_THAT(std::string(host.status().message()),
              HasSubstr("\"actr.0.*\" matches no parameter of policy \"p\"; the nearest is \"actor.0.*\""));
}

TEST(PpoOptionsTest, RefusesRatesAndPenaltiesThatCannotWork) {
  PpoOptions fixed;
  fixed.penalty = {.use_kl_loss = true, .kl_coeff = 0, .kl_target = 0};
  EXPECT_TRUE(ValidatePpoOptions(fixed).ok()) << "a coefficient that stays may be 0";
  const auto message = [](auto change) {
    PpoOptions options;
    change(&options);
    const absl::Status status = ValidatePpoOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message([](auto* o) { o->rate.lr_kl_target = -1; }),
            "algorithm.lr_kl_target is -1; expected a finite number of at least 0");
  EXPECT_EQ(message([](auto* o) {
              o->rate.lr_kl_target = 0.01;
              o->learning_rate = 0.1;
            }),
            "algorithm.lr is 0.1; expected min_lr to max_lr, 1e-06 to 0.01, with lr_kl_target");
  EXPECT_EQ(message([](auto* o) {
              o->rate.lr_kl_target = 0.01;
              o->rate.min_lr = 1;
            }),
            "algorithm.min_lr is 1; expected at most max_lr, 0.01");
  EXPECT_EQ(message([](auto* o) { o->rate.lr_kl_factor = 0.5; }),
            "algorithm.lr_kl_factor is 0.5; expected a number of at least 1");
  EXPECT_EQ(message([](auto* o) { o->rate.lr_kl_step = 0; }),
            "algorithm.lr_kl_step is 0; expected a number of at least 1");
  EXPECT_EQ(message([](auto* o) { o->penalty.kl_coeff = -1; }),
            "algorithm.kl_coeff is -1; expected a finite number of at least 0");
  EXPECT_EQ(message([](auto* o) { o->penalty = {.use_kl_loss = true, .kl_coeff = 0, .kl_target = 0.01}; }),
            "algorithm.kl_coeff is 0; expected a finite number above 0");
  EXPECT_EQ(message([](auto* o) { o->clip_param = 0; }), "algorithm.clip_param is 0; expected a finite number above 0");
}

TEST(SchedulesTest, AreCheckedAtEveryTurn) {
  const auto message = [](std::map<std::string, policy::OptionValue> schedules) {
    policy::AlgorithmSpec spec = PpoSpec(PpoOptions());
    for (auto& [key, value] : schedules) spec.options[key] = std::move(value);
    return std::string(CheckAlgorithm(spec).message());
  };
  using policy::ScheduleUnit;
  using policy::ScheduleValue;
  EXPECT_EQ(message({{"clip_param", ScheduleValue{0.2, 0.1, 10}}, {"gamma", ScheduleValue{0.9, 0.99, 10}}}), "");
  EXPECT_EQ(message({{"clip_param", ScheduleValue{0.2, 0, 10}}}),
            "algorithm.clip_param is 0; expected a finite number above 0");
  EXPECT_EQ(message({{"gae_lambda", ScheduleValue::OfPoints({{0, 1}, {5, 1.5}, {9, 1}}, ScheduleUnit::kUpdates)}}),
            "algorithm.gae_lambda is 1.5; expected a number in [0, 1]");
  EXPECT_EQ(message({{"lr", ScheduleValue{1, 0, -1}}}), "algorithm.lr is -1; expected env_steps of at least 0");
  EXPECT_EQ(message({{"lr", ScheduleValue{1e-3, 1e-4, 10}}, {"lr_kl_target", 0.01}}),
            "algorithm.lr_kl_target is 0.01; expected 0 where lr is a schedule: it sets the rate");
  EXPECT_EQ(message({{"lr_kl_target", ScheduleValue{0, 0.01, 10}}}),
            "schedules of algorithm.*: the policy's state would change its form from \" value_moments\" to "
            "\" value_moments learning_rate\"; expected numbers that switch nothing on or off");
}

}  // namespace
}  // namespace troupe::training
