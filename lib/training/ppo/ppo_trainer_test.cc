#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

const policy::PolicySlot kSlot(0);
const std::vector<int64_t> kSegments = {7, 9, 5, 12, 4, 8, 10};  // 55 rows

policy::PolicySpec Spec() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = *space::Space::Discrete(4, 1);
  spec.has_action_mask = true;
  spec.agent_id_size = 3;
  spec.SetCriticInput(policy::NetworkInput::kJointObservation, 12);
  spec.actor.hidden_sizes = {16, 8};
  return spec;
}

PpoOptions Options() {
  PpoOptions options;
  options.use_value_clip = true;
  options.learning_rate = 1e-3;
  options.num_epochs = 3;
  options.minibatch_size = 16;
  return options;
}

learner::UpdateContext Context(int64_t iteration, int64_t env_steps = 0) {
  return {.seed = 3, .iteration = iteration, .env_steps = env_steps, .next_version = {1, iteration + 1}};
}

std::map<std::string, double> Metrics(const learner::PolicyUpdateReport& report) {
  return {report.metrics.begin(), report.metrics.end()};
}

/// The actor by its definition.
std::vector<double> Logits(const policy::PolicySpec& spec, const std::vector<float>& parameters, const float* obs) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  std::vector<double> x(obs, obs + spec.observation_size());
  for (size_t l = 0; l <= spec.actor.hidden_sizes.size(); ++l) {
    const policy::ParameterEntry& weight = *layout.Find(absl::StrCat("actor.", l, ".weight"));
    std::vector<double> y;
    for (int64_t out = 0; out < weight.shape[0]; ++out) {
      double sum = parameters[static_cast<size_t>(layout.Find(absl::StrCat("actor.", l, ".bias"))->offset + out)];
      for (size_t in = 0; in < x.size(); ++in)
        sum += x[in] * parameters[static_cast<size_t>(weight.offset + out * weight.shape[1]) + in];
      y.push_back(l < spec.actor.hidden_sizes.size() ? std::tanh(sum) : sum);
    }
    x = y;
  }
  return x;
}

class PpoTrainerTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }

  static std::unique_ptr<TrainerHost> Make(std::vector<policy::PolicySpec> specs, const PpoOptions& options,
                                           uint64_t seed = 1) {
    std::vector<PpoOptions> by_slot(specs.size(), options);
    return Make(std::move(specs), std::move(by_slot), seed);
  }
  static std::unique_ptr<TrainerHost> Make(std::vector<policy::PolicySpec> specs, std::vector<PpoOptions> options,
                                           uint64_t seed = 1) {
    const auto team = std::make_shared<ThreadTeam>(GetParam());
    auto trainer = MakePpoHost(
        std::move(specs), std::move(options), seed,
        [team](const policy::PolicySpec& spec) { return MakeFusedBackend(spec, team); }, team);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    return *std::move(trainer);
  }

  static learner::PolicyUpdateReport Update(TrainerHost* trainer, const learner::TrainBatch& batch,
                                            const learner::UpdateContext& context) {
    const auto reports = trainer->Update(batch, context);
    EXPECT_TRUE(reports.ok()) << reports.status();
    return reports->at(0);
  }
};

TEST_P(PpoTrainerTest, CountsStepsWithTheRemainder) {
  RandomBatch batch(Spec(), kSegments, 1);
  const auto trainer = Make({Spec()}, Options());
  const learner::PolicyUpdateReport report = Update(trainer.get(), batch.batch, Context(0));
  EXPECT_EQ(report.trained_rows, 55);
  EXPECT_EQ(report.epochs, 3);
  EXPECT_EQ(report.minibatch_steps, 3 * 4);  // 16 + 16 + 16 + 7
  EXPECT_EQ(report.skipped_steps, 0);
  const policy::PolicyState state = *trainer->ExportState(kSlot);
  EXPECT_EQ(state.Integer(kAdamSteps), 12);
  EXPECT_EQ(state.Integer(kTrainedRows), 55);
  EXPECT_EQ(state.version, (policy::WeightVersion{1, 1}));
}

TEST_P(PpoTrainerTest, AMinibatchMayHoldTheWholeBatch) {
  RandomBatch batch(Spec(), kSegments, 1);
  PpoOptions options = Options();
  options.minibatch_size = 1000;
  EXPECT_EQ(Update(Make({Spec()}, options).get(), batch.batch, Context(0)).minibatch_steps, 3);
}

TEST_P(PpoTrainerTest, SameSeedSameBits) {
  RandomBatch batch(Spec(), kSegments, 1);
  const auto a = Make({Spec()}, Options());
  const auto b = Make({Spec()}, Options());
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    Update(a.get(), batch.batch, Context(iteration));
    Update(b.get(), batch.batch, Context(iteration));
  }
  policy::ExpectSameBits(*a->ExportState(kSlot), *b->ExportState(kSlot));
  const auto other = Make({Spec()}, Options(), 2);
  EXPECT_NE(other->ExportState(kSlot)->parameters(), Make({Spec()}, Options())->ExportState(kSlot)->parameters());
}

TEST_P(PpoTrainerTest, AnotherShuffleSeedGivesOtherWeights) {
  RandomBatch batch(Spec(), kSegments, 1);
  const auto a = Make({Spec()}, Options());
  const auto b = Make({Spec()}, Options());
  Update(a.get(), batch.batch, Context(0));
  learner::UpdateContext context = Context(0);
  context.seed = 4;
  Update(b.get(), batch.batch, context);
  EXPECT_NE(a->ExportState(kSlot)->parameters(), b->ExportState(kSlot)->parameters());
}

TEST_P(PpoTrainerTest, ResumedEqualsUninterrupted) {
  policy::PolicySpec spec = Spec();
  spec.normalize_observations = true;
  RandomBatch batch(spec, kSegments, 1);
  const auto whole = Make({spec}, Options());
  const auto first_half = Make({spec}, Options());
  for (int64_t i = 0; i < 2; ++i) {
    Update(whole.get(), batch.batch, Context(i));
    Update(first_half.get(), batch.batch, Context(i));
  }
  const auto second_half = Make({spec}, Options(), 99);
  ASSERT_TRUE(second_half->ImportState(*first_half->ExportState(kSlot), kSlot).ok());
  for (int64_t i = 2; i < 4; ++i) {
    Update(whole.get(), batch.batch, Context(i));
    Update(second_half.get(), batch.batch, Context(i));
  }
  policy::ExpectSameBits(*whole->ExportState(kSlot), *second_half->ExportState(kSlot));
}

TEST_P(PpoTrainerTest, WarmStartFromWeightsAloneBeginsTheOptimizerAfresh) {
  RandomBatch batch(Spec(), kSegments, 1);
  const auto trainer = Make({Spec()}, Options());
  Update(trainer.get(), batch.batch, Context(0));
  policy::PolicyState state = *trainer->ExportState(kSlot);
  for (const char* name : {kAdamExpAvg, kAdamExpAvgSq}) state.Remove(name);
  ASSERT_TRUE(trainer->ImportState(state, kSlot).ok());
  const policy::PolicyState after = *trainer->ExportState(kSlot);
  EXPECT_EQ(after.parameters(), state.parameters());
  EXPECT_EQ(after.Integer(kAdamSteps), 0);
  EXPECT_EQ(after.Floats(kAdamExpAvg), std::vector<float>(state.parameters().size(), 0.0f));
}

TEST_P(PpoTrainerTest, RefusesAStateThatDoesNotFit) {
  const auto trainer = Make({Spec()}, Options());
  policy::PolicyState state = *trainer->ExportState(kSlot);
  state.Set(policy::kParameters, std::vector<float>(state.parameters().size() - 1));
  EXPECT_EQ(trainer->ImportState(state, kSlot).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(trainer->ExportState(policy::PolicySlot(1)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(trainer->Snapshot(policy::PolicySlot(-1)).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(PpoTrainerTest, SnapshotIsTheActorWithItsVersion) {
  policy::PolicySpec spec = Spec();
  spec.normalize_observations = true;
  RandomBatch batch(spec, kSegments, 1);
  const auto trainer = Make({spec}, Options());
  const policy::WeightSnapshotPtr before = *trainer->Snapshot(kSlot);
  EXPECT_TRUE(before->Validate(spec).ok());
  EXPECT_EQ(before->version, (policy::WeightVersion{0, 0}));
  EXPECT_EQ(before->observation_mean, std::vector<float>(3, 0.0f));
  EXPECT_EQ(before->observation_inverse_std, std::vector<float>(3, 1.0f));
  Update(trainer.get(), batch.batch, Context(0));
  const policy::WeightSnapshotPtr after = *trainer->Snapshot(kSlot);
  EXPECT_TRUE(after->Validate(spec).ok());
  EXPECT_EQ(after->version, (policy::WeightVersion{1, 1}));
  EXPECT_NE(after->actor, before->actor);
  EXPECT_NE(after->observation_mean, before->observation_mean);
}

// The batch was acted on with the old moments: the update must read it with those, and only then learn new ones.
TEST_P(PpoTrainerTest, ObservationMomentsChangeAfterTheUpdate) {
  policy::PolicySpec normalized = Spec();
  normalized.normalize_observations = true;
  RandomBatch batch(normalized, kSegments, 1);
  const auto with = Make({normalized}, Options());
  const auto without = Make({Spec()}, Options());
  const double loss_with = Metrics(Update(with.get(), batch.batch, Context(0)))["Loss/Policy loss"];
  EXPECT_DOUBLE_EQ(loss_with, Metrics(Update(without.get(), batch.batch, Context(0)))["Loss/Policy loss"]);
  EXPECT_NE(Metrics(Update(with.get(), batch.batch, Context(1)))["Loss/Policy loss"],
            Metrics(Update(without.get(), batch.batch, Context(1)))["Loss/Policy loss"]);
}

TEST_P(PpoTrainerTest, TargetKlStopsFurtherEpochs) {
  RandomBatch batch(Spec(), kSegments, 1);
  PpoOptions options = Options();
  options.num_epochs = 50;
  options.target_kl = 1e-9;  // the batch's own log-probabilities are far from the fresh policy's
  const learner::PolicyUpdateReport report = Update(Make({Spec()}, options).get(), batch.batch, Context(0));
  EXPECT_EQ(report.epochs, 1);
  EXPECT_GT(Metrics(report)["Policy/KL"], options.target_kl);
  options.target_kl = 1e9;
  EXPECT_EQ(Update(Make({Spec()}, options).get(), batch.batch, Context(0)).epochs, 50);
}

TEST_P(PpoTrainerTest, SchedulesFollowTrainedEnvSteps) {
  RandomBatch batch(Spec(), kSegments, 1);
  policy::AlgorithmSpec algorithm = PpoSpec(Options());
  algorithm.options["lr"] = policy::ScheduleValue{1e-2, 0, 1000};
  algorithm.options["critic_lr"] = policy::ScheduleValue{4e-3, 2e-3, 1000};
  algorithm.options["entropy_coeff"] = policy::ScheduleValue{0.1, 0.0, 1000};
  algorithm.options["value_loss_coeff"] = policy::ScheduleValue{1, 2, 1000};
  const auto trainer = Make({Spec()}, Options());
  ASSERT_EQ(trainer->SetAlgorithm(kSlot, algorithm), absl::OkStatus());
  std::map<std::string, double> metrics = Metrics(Update(trainer.get(), batch.batch, Context(0, 250)));
  EXPECT_DOUBLE_EQ(metrics["Policy/Learning rate"], 7.5e-3);
  EXPECT_DOUBLE_EQ(metrics["Policy/Critic learning rate"], 3.5e-3);
  EXPECT_NEAR(metrics["Loss/Entropy loss"], -0.075 * metrics["Policy/Entropy"], 1e-12);
  const policy::PolicyState before = *trainer->ExportState(kSlot);
  PpoOptions then = Options();
  then.learning_rate = 7.5e-3;
  then.critic_learning_rate = 3.5e-3;
  then.entropy_coeff = 0.075;
  then.value_loss_coeff = 1.25;
  const auto constant = Make({Spec()}, then);
  Update(constant.get(), batch.batch, Context(0, 250));
  policy::ExpectSameBits(*constant->ExportState(kSlot), before);
  metrics = Metrics(Update(trainer.get(), batch.batch, Context(1, 5000)));
  EXPECT_EQ(metrics["Policy/Learning rate"], 0);
  const policy::PolicyState after = *trainer->ExportState(kSlot);
  const size_t actor = static_cast<size_t>(policy::ParameterLayout::For(Spec()).acting_size());
  EXPECT_TRUE(std::equal(before.parameters().begin(), before.parameters().begin() + actor, after.parameters().begin()));
  EXPECT_FALSE(
      std::equal(before.parameters().begin() + actor, before.parameters().end(), after.parameters().begin() + actor));
}

TEST_P(PpoTrainerTest, InactiveRowsDoNotCount) {
  policy::PolicySpec spec = Spec();
  spec.normalize_observations = true;
  RandomBatch batch(spec, kSegments, 1, /*inactive_rows=*/true);
  const auto a = Make({spec}, Options());
  const learner::PolicyUpdateReport report = Update(a.get(), batch.batch, Context(0));
  EXPECT_EQ(report.trained_rows, std::count(batch.agent_mask.begin(), batch.agent_mask.end(), 1));
  EXPECT_LT(report.trained_rows, 55);
  // What an inactive agent saw and did is of no weight, to normalizers neither (its reward still reaches the steps
  // before).
  for (size_t row = 0; row < batch.agent_mask.size(); ++row) {
    if (batch.agent_mask[row] != 0) continue;
    batch.logp[row] -= 1;
    for (int c = 0; c < 3; ++c) batch.obs[row * 3 + c] += 5;
  }
  const auto b = Make({spec}, Options());
  Update(b.get(), batch.batch, Context(0));
  policy::ExpectSameBits(*a->ExportState(kSlot), *b->ExportState(kSlot));
}

TEST_P(PpoTrainerTest, NothingActiveIsNoUpdate) {
  RandomBatch batch(Spec(), kSegments, 1);
  const std::vector<uint8_t> nobody(55, 0);
  batch.rows().agent_mask = nobody;
  PpoOptions options = Options();
  options.use_value_active_masks = true;  // else the critic learns what they are worth
  const auto trainer = Make({Spec()}, options);
  const std::vector<float> before = trainer->ExportState(kSlot)->parameters();
  EXPECT_EQ(Update(trainer.get(), batch.batch, Context(0)).minibatch_steps, 0);
  EXPECT_EQ(trainer->ExportState(kSlot)->parameters(), before);
  EXPECT_EQ(trainer->ExportState(kSlot)->version, (policy::WeightVersion{1, 1}));
}

TEST_P(PpoTrainerTest, APolicyThatDoesNotTrainKeepsItsWeights) {
  RandomBatch batch(Spec(), kSegments, 1);
  batch.rows().train = false;
  const auto trainer = Make({Spec()}, Options());
  const std::vector<float> before = trainer->ExportState(kSlot)->parameters();
  EXPECT_EQ(Update(trainer.get(), batch.batch, Context(0)).trained_rows, 0);
  EXPECT_EQ(trainer->ExportState(kSlot)->parameters(), before);
}

TEST_P(PpoTrainerTest, ClassesThatAreNotTrainedAreOnlyKept) {
  policy::PolicySpec frozen = Spec();
  frozen.id = policy::PolicyId("frozen");
  frozen.policy_class = *policy::ParsePolicyClass("checkpoint:runs/old");
  policy::PolicySpec dice = Spec();
  dice.id = policy::PolicyId("dice");
  dice.policy_class = *policy::ParsePolicyClass("random");
  dice.agent_id_size = 0;
  const auto trainer = Make({Spec(), frozen, dice}, Options());
  const policy::PolicySlot frozen_slot(1);
  const policy::PolicySlot dice_slot(2);
  policy::PolicyState loaded = *trainer->ExportState(frozen_slot);
  EXPECT_TRUE(loaded.Floats(kAdamExpAvg).empty()) << "there is no optimizer";
  for (float& parameter : loaded.MutableFloats(policy::kParameters)) parameter += 0.25f;
  ASSERT_TRUE(trainer->ImportState(loaded, frozen_slot).ok());

  RandomBatch batch(Spec(), kSegments, 1);
  const std::vector<float> before = trainer->ExportState(kSlot)->parameters();
  EXPECT_GT(Update(trainer.get(), batch.batch, Context(0)).trained_rows, 0);
  EXPECT_NE(trainer->ExportState(kSlot)->parameters(), before);
  EXPECT_EQ(trainer->ExportState(frozen_slot)->parameters(), loaded.parameters());
  const absl::StatusOr<policy::WeightSnapshotPtr> snapshot = trainer->Snapshot(frozen_slot);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ((*snapshot)->actor[0], loaded.parameters()[0]);

  const policy::PolicyState nothing = *trainer->ExportState(dice_slot);
  EXPECT_TRUE(nothing.blocks.empty());
  EXPECT_TRUE(trainer->ImportState(nothing, dice_slot).ok());

  batch.rows().policy = frozen_slot;
  const auto refused = trainer->Update(batch.batch, Context(1));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().message(), "policy \"frozen\" is of class checkpoint:runs/old, which is not trained");
}

TEST_P(PpoTrainerTest, ANanObservationSkipsItsMinibatches) {
  RandomBatch batch(Spec(), kSegments, 1);
  PpoOptions options = Options();
  batch.obs[10 * 3] = std::numeric_limits<float>::quiet_NaN();  // reaches the actor only: the critic reads critic_state
  const auto trainer = Make({Spec()}, options);
  const learner::PolicyUpdateReport report = Update(trainer.get(), batch.batch, Context(0));
  EXPECT_EQ(report.skipped_steps, options.num_epochs);  // the row is in one minibatch of each epoch
  EXPECT_EQ(report.minibatch_steps, options.num_epochs * 3);
  const policy::PolicyState state = *trainer->ExportState(kSlot);
  EXPECT_TRUE(state.Validate(Spec()).ok());
  EXPECT_EQ(state.Integer(kAdamSteps), report.minibatch_steps);
  EXPECT_EQ(state.Integer(kSkippedUpdates), 0);
}

TEST_P(PpoTrainerTest, ANanRewardSkipsTheWholeUpdate) {
  RandomBatch good(Spec(), kSegments, 1);
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    RandomBatch bad(Spec(), kSegments, 1);
    bad.rewards[20] = poison;
    const auto trainer = Make({Spec()}, Options());
    Update(trainer.get(), good.batch, Context(0));
    const policy::PolicyState before = *trainer->ExportState(kSlot);
    for (int64_t i = 1; i <= 5; ++i) {
      const learner::PolicyUpdateReport report = Update(trainer.get(), bad.batch, Context(i));
      EXPECT_EQ(report.minibatch_steps, 0);
      EXPECT_EQ(report.skipped_steps, 12);
      EXPECT_EQ(Metrics(report)["Policy/Consecutive skips"], i);
    }
    policy::PolicyState after = *trainer->ExportState(kSlot);
    EXPECT_EQ(after.Integer(kSkippedUpdates), 5);
    EXPECT_EQ(after.Integer(kConsecutiveSkips), 5);
    // Nothing else changed.
    for (const char* name : {kSkippedUpdates, kConsecutiveSkips, kTrainedRows}) {
      after.SetInteger(name, before.Integer(name));
    }
    policy::ExpectSameBits(before, after);
    Update(trainer.get(), good.batch, Context(6));
    EXPECT_EQ(trainer->ExportState(kSlot)->Integer(kConsecutiveSkips), 0);
    EXPECT_EQ(trainer->ExportState(kSlot)->Integer(kSkippedUpdates), 5);
  }
}

TEST_P(PpoTrainerTest, OnlyThePoisonedPolicyIsTouched) {
  policy::PolicySpec second = Spec();
  second.id = policy::PolicyId("second");
  RandomBatch bad(Spec(), kSegments, 1);
  RandomBatch good(second, kSegments, 2);
  bad.rewards[0] = std::numeric_limits<float>::quiet_NaN();
  learner::TrainBatch both = bad.batch;
  both.policies.push_back(good.rows());
  both.policies[1].policy = policy::PolicySlot(1);
  const auto trainer = Make({Spec(), second}, Options());
  const auto reports = trainer->Update(both, Context(0));
  ASSERT_TRUE(reports.ok());
  EXPECT_EQ(reports->at(0).minibatch_steps, 0);
  EXPECT_EQ(reports->at(1).minibatch_steps, 12);
  EXPECT_EQ(reports->at(1).policy, policy::PolicySlot(1));
}

TEST_P(PpoTrainerTest, EveryPolicyTrainsWithItsOwnOptions) {
  policy::PolicySpec second = Spec();
  second.id = policy::PolicyId("second");
  RandomBatch batch(Spec(), kSegments, 1);
  learner::TrainBatch both = batch.batch;
  both.policies.push_back(batch.rows());
  both.policies[1].policy = policy::PolicySlot(1);
  PpoOptions other;
  other.learning_rate = 7.5e-4;
  other.critic_learning_rate = 2e-3;
  other.gamma = 0.9;
  other.use_value_norm = false;
  other.clip_param = 0.1;
  other.num_epochs = 2;
  other.minibatch_size = 20;
  const auto mixed = Make({Spec(), second}, std::vector<PpoOptions>{Options(), other});
  const auto first_alike = Make({Spec(), second}, Options());
  const auto second_alike = Make({Spec(), second}, other);
  for (TrainerHost* trainer : {mixed.get(), first_alike.get(), second_alike.get()}) {
    const auto reports = trainer->Update(both, Context(0, 500));
    ASSERT_TRUE(reports.ok()) << reports.status();
    if (trainer != mixed.get()) continue;
    EXPECT_EQ(reports->at(0).minibatch_steps, 3 * 4);
    EXPECT_EQ(reports->at(1).minibatch_steps, 2 * 3);
    EXPECT_EQ(Metrics(reports->at(1))["Policy/Learning rate"], 7.5e-4);
  }
  policy::ExpectSameBits(*mixed->ExportState(kSlot), *first_alike->ExportState(kSlot));
  policy::ExpectSameBits(*mixed->ExportState(policy::PolicySlot(1)), *second_alike->ExportState(policy::PolicySlot(1)));
  EXPECT_TRUE(mixed->ExportState(policy::PolicySlot(1))->Moments(policy::kValueMoments).mean.empty());
}

TEST_P(PpoTrainerTest, AFailedUpdateLeavesEveryPolicyAsItWas) {
  policy::PolicySpec second = Spec();
  second.id = policy::PolicyId("second");
  RandomBatch good(Spec(), kSegments, 1);
  learner::TrainBatch both = good.batch;
  both.policies.push_back(good.rows());
  both.policies[1].policy = policy::PolicySlot(1);
  both.policies[1].rewards = both.policies[1].rewards.subspan(1);
  const auto trainer = Make({Spec(), second}, Options());
  const policy::PolicyState before = *trainer->ExportState(kSlot);
  const auto reports = trainer->Update(both, Context(0));
  EXPECT_EQ(reports.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reports.status().message(), "train batch of policy \"second\": rewards has 54 elements; expected 55");
  const policy::PolicyState after = *trainer->ExportState(kSlot);
  policy::ExpectSameBits(before, after);
  EXPECT_EQ(after.version, before.version);
}

TEST_P(PpoTrainerTest, RefusesABatchThatDoesNotFit) {
  const auto trainer = Make({Spec()}, Options());
  const auto expect_refused = [&](const char* what, const std::function<void(RandomBatch*)>& spoil) {
    RandomBatch batch(Spec(), kSegments, 1);
    spoil(&batch);
    EXPECT_EQ(trainer->Update(batch.batch, Context(0)).status().code(), absl::StatusCode::kInvalidArgument) << what;
  };
  expect_refused("obs", [](RandomBatch* b) { --b->rows().obs.rows; });
  expect_refused("columns of obs", [](RandomBatch* b) { --b->rows().obs.columns; });
  expect_refused("stride of obs", [](RandomBatch* b) { --b->rows().obs.stride; });
  expect_refused("critic_state", [](RandomBatch* b) { ++b->rows().critic_state.columns; });
  expect_refused("mask", [](RandomBatch* b) { b->rows().action_mask = {}; });
  expect_refused("slot", [](RandomBatch* b) { b->slot[3] = 3; });
  expect_refused("critic_row", [](RandomBatch* b) { b->critic_row[3] = -1; });
  expect_refused("final_critic_row", [](RandomBatch* b) { b->final_critic_row[0] = 1 << 20; });
  expect_refused("action below", [](RandomBatch* b) { b->actions[0].i32 = 0; });
  expect_refused("action above", [](RandomBatch* b) { b->actions[0].i32 = 5; });
  expect_refused("segment", [](RandomBatch* b) { b->rows().segments[0].rows = 100; });
  expect_refused("final row", [](RandomBatch* b) { b->rows().segments[1].final_row = 99; });
  RandomBatch unknown(Spec(), kSegments, 1);
  unknown.rows().policy = policy::PolicySlot(5);
  EXPECT_EQ(trainer->Update(unknown.batch, Context(0)).status().code(), absl::StatusCode::kNotFound);
}

// All that was ever seen counts, not only the last batch.
TEST_P(PpoTrainerTest, ObservationMomentsAreThoseOfAllBatches) {
  policy::PolicySpec spec = Spec();
  spec.normalize_observations = true;
  const auto trainer = Make({spec}, Options());
  double count = 0;
  std::vector<double> sum(3), squares(3);
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    RandomBatch batch(spec, kSegments, static_cast<uint64_t>(iteration) + 1);
    for (size_t i = 0; i < batch.obs.size(); ++i) {
      batch.obs[i] += 5 * static_cast<float>(iteration);
      sum[i % 3] += batch.obs[i];
      squares[i % 3] += double{batch.obs[i]} * batch.obs[i];
    }
    count += 55;
    Update(trainer.get(), batch.batch, Context(iteration));
    const policy::RunningMoments moments = trainer->ExportState(kSlot)->Moments(policy::kObservationMoments);
    EXPECT_EQ(moments.count, count);
    for (size_t c = 0; c < 3; ++c) {
      const double mean = sum[c] / count;
      EXPECT_NEAR(moments.mean[c], mean, 1e-9);
      EXPECT_NEAR(moments.variance[c], squares[c] / count - mean * mean, 1e-9);
    }
  }
}

// Returns of old policies fade: they count for at most 50 batches of this size. Observations for 1e8.
TEST_P(PpoTrainerTest, MomentsForget) {
  policy::PolicySpec spec = Spec();
  spec.normalize_observations = true;
  RandomBatch batch(spec, kSegments, 1);
  const auto trainer = Make({spec}, Options());
  policy::PolicyState state = *trainer->ExportState(kSlot);
  state.SetMoments(policy::kValueMoments, {1e6, {1000.0}, {1.0}});
  state.SetMoments(policy::kObservationMoments, {1e9, {0.0, 0.0, 0.0}, {1.0, 1.0, 1.0}});
  ASSERT_TRUE(trainer->ImportState(state, kSlot).ok());
  Update(trainer.get(), batch.batch, Context(0));
  const policy::PolicyState after = *trainer->ExportState(kSlot);
  EXPECT_EQ(after.Moments(policy::kValueMoments).count, 50 * 55 + 55);
  EXPECT_EQ(after.Moments(policy::kObservationMoments).count, 1e8 + 55);
}

// Four bandit arms, of which one pays: what a wrong sign anywhere in the losses would not survive.
TEST_P(PpoTrainerTest, LearnsWhichArmPays) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = *space::Space::Discrete(4);
  PpoOptions options = Options();
  options.learning_rate = 1e-2;
  const std::vector<int64_t> pulls(200, 1);
  const auto trainer = Make({spec}, options);
  double entropy = 0;
  for (int64_t iteration = 0; iteration < 40; ++iteration) {
    RandomBatch batch(spec, pulls, static_cast<uint64_t>(iteration));
    for (learner::TrainSegment& segment : batch.rows().segments) segment.final_row = -1;
    for (size_t row = 0; row < 200; ++row) {
      batch.rewards[row] = batch.actions[row].i32 == 2 ? 1.0f : 0.0f;
      batch.logp[row] = std::log(0.25f);  // pulled at random: ratios correct for it
    }
    entropy = Metrics(Update(trainer.get(), batch.batch, Context(iteration)))["Policy/Entropy"];
  }
  // Uniform is log 4 = 1.39; clipping holds the policy to about 1.2 times the behaviour's probability for the arm that
  // pays.
  EXPECT_LT(entropy, 1.375);
  const policy::PolicyState state = *trainer->ExportState(kSlot);
  EXPECT_NEAR(state.Moments(policy::kValueMoments).mean[0], 0.25, 0.05);
  // The arm that pays is the likeliest one, whatever is observed.
  const RandomBatch seen(spec, pulls, 77);
  for (size_t row = 0; row < pulls.size(); ++row) {
    const std::vector<double> logits = Logits(spec, state.parameters(), &seen.obs[row * 3]);
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), 2) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, PpoTrainerTest, testing::Values(1, 2, 4));

TEST(PpoOptionsTest, RefusesWhatCannotWork) {
  EXPECT_TRUE(ValidatePpoOptions(PpoOptions{}).ok());
  const auto message = [](const std::function<void(PpoOptions*)>& change) {
    PpoOptions options;
    change(&options);
    const absl::Status status = ValidatePpoOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message([](PpoOptions* o) { o->gamma = 1.5; }), "algorithm.gamma is 1.5; expected a number in [0, 1]");
  EXPECT_NE(message([](PpoOptions* o) { o->gae_lambda = -0.1; }).find("gae_lambda"), std::string::npos);
  EXPECT_NE(message([](PpoOptions* o) { o->clip_param = 0; }).find("clip_param"), std::string::npos);
  EXPECT_NE(message([](PpoOptions* o) { o->num_epochs = 0; }).find("num_epochs"), std::string::npos);
  EXPECT_NE(message([](PpoOptions* o) { o->minibatch_size = 0; }).find("minibatch_size"), std::string::npos);
  EXPECT_NE(message([](PpoOptions* o) { o->learning_rate = -1; }).find("lr"), std::string::npos);
  EXPECT_NE(message([](PpoOptions* o) { o->adam_epsilon = std::nan(""); }).find("adam_epsilon"), std::string::npos);
  EXPECT_NE(message([](PpoOptions* o) { o->target_kl = -1; }).find("target_kl"), std::string::npos);
}

TEST(PpoOptionsTest, SaysWhosePolicysAreWrong) {
  policy::PolicySpec second = Spec();
  second.id = policy::PolicyId("second");
  PpoOptions wrong;
  wrong.gamma = 2;
  const auto team = std::make_shared<ThreadTeam>(1);
  const auto make = [team](const policy::PolicySpec& spec) { return MakeFusedBackend(spec, team); };
  EXPECT_EQ(MakePpoHost({Spec(), second}, {PpoOptions(), wrong}, 1, make, team).status().message(),
            "policy \"second\": algorithm.gamma is 2; expected a number in [0, 1]");
  EXPECT_EQ(MakePpoHost({Spec(), second}, {PpoOptions()}, 1, make, team).status().message(),
            "got options for 1 policies; expected 2");
}

TEST(FusedBackendTest, IsMadeForTheWidestUnitOfTheProcessor) {
  const auto team = std::make_shared<ThreadTeam>(1);
  const auto expect = [&](VectorUnit unit, bool has, const char* name, const char* reason) {
    const auto backend = MakeFusedBackend(Spec(), team, unit);
    if (has) {
      ASSERT_TRUE(backend.ok()) << backend.status();
      EXPECT_EQ((*backend)->name(), name);
    } else {
      EXPECT_EQ(backend.status(), absl::UnimplementedError(reason));
    }
  };
  expect(VectorUnit::kAvx2, base::ProcessorHasAvx2(), "fused/avx2", base::kNoAvx2);
  expect(VectorUnit::kAvx512, base::ProcessorHasAvx512(), "fused/avx512", base::kNoAvx512);
  expect(VectorUnit::kBest, base::ProcessorHasAvx2(), base::ProcessorHasAvx512() ? "fused/avx512" : "fused/avx2",
         base::kNoAvx2);
}

TEST(FusedBackendTest, SaysWhatItCannotServe) {
  if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  policy::PolicySpec spec = Spec();
  spec.mutable_critic()->hidden_sizes = {2048};
  EXPECT_EQ(MakeFusedBackend(spec, std::make_shared<ThreadTeam>(1)).status(),
            absl::UnimplementedError("fused kernels serve layers up to 1024 units; got 2048"));
  spec = Spec();
  spec.mutable_critic()->encoder = policy::EncoderKind(9);
  EXPECT_EQ(MakeFusedBackend(spec, std::make_shared<ThreadTeam>(1)).status(),
            absl::UnimplementedError("the fused back end computes encoders of kind mlp, got unknown for the critic"));
  spec = Spec();
  spec.actor.core = {policy::CoreKind::kGru, 512, 1};
  spec.sequence_length = 2000;
  const absl::Status status = MakeFusedBackend(spec, std::make_shared<ThreadTeam>(1), VectorUnit::kAvx2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              testing::StartsWith("fused kernels keep at most 64 MiB of a panel of sequences; the actor in sequences "
                                  "of 2000 needs 8"));
}

}  // namespace
}  // namespace troupe::training
