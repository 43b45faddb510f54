// PopArt, normalized states, dead agents: what an update makes of them, and that it goes on with the same bits.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/fake_blob_store.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/moments.h"
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

using policy::NetworkInput;
using policy::PolicySlot;

const PolicySlot kSlot(0);
constexpr int64_t kRows = 55;  // of kSmallUpdateSegments
// Three agents of 3, 4 and 2 elements.
const std::vector<int64_t> kJointSizes = {3, 4, 2};

policy::PolicySpec JointSpec() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.agent_id_size = 3;
  spec.SetCriticInput(NetworkInput::kJointObservation, 3 + 4 + 2 + 3);
  spec.SetCriticAgentId(true);
  spec.actor.hidden_sizes = {8};
  return spec;
}

PpoOptions PopArt() {
  PpoOptions options = SmallUpdateOptions();
  options.use_value_norm = false;
  options.use_popart = true;
  return options;
}

/// One minibatch, one pass: Adam's first moment is a tenth of the gradient.
PpoOptions OneStep() {
  PpoOptions options = SmallUpdateOptions();
  options.num_epochs = 1;
  options.minibatch_size = 1000;
  options.max_grad_norm = 0;
  return options;
}

/// A batch of JointSpec() whose agents are there in two of three steps, and dead in every fourth row where asked for.
struct JointBatch : RandomBatch {
  explicit JointBatch(uint64_t seed, bool deaths = false, const policy::PolicySpec& spec = JointSpec())
      : RandomBatch(spec, kSmallUpdateSegments, seed) {
    for (size_t row = 0; row < critic_state.size() / 12; ++row) {
      for (size_t agent = 0; agent < 3; ++agent) critic_state[row * 12 + 9 + agent] = (row + agent) % 3 == 0 ? 0 : 1;
    }
    rows().joint_sizes = kJointSizes;
    for (int64_t row = 0; row < kRows && deaths; ++row) dead.push_back(row % 4 == 3 ? 0 : 1);
    if (deaths) rows().agent_mask = dead;
  }
  std::vector<uint8_t> dead;
};

std::unique_ptr<TrainerHost> MakeTrainer(const std::vector<policy::PolicySpec>& specs, const PpoOptions& options,
                                         const PolicyStoreOptions& store = {}, policy::BlobStore* blobs = nullptr) {
  const auto team = std::make_shared<ThreadTeam>(2);
  PolicyStore::Deps deps;
  deps.blobs = blobs;
  auto trainer = MakePpoHost(
      specs, std::vector<PpoOptions>(specs.size(), options), 1,
      [team](const policy::PolicySpec& spec) { return MakeFusedBackend(spec, team); }, team,
      tensor::TensorAllocator::Pageable(), store, deps);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return *std::move(trainer);
}

learner::PolicyUpdateReport Update(TrainerHost* trainer, const learner::TrainBatch& batch, int64_t iteration = 0) {
  const auto reports = trainer->Update(batch, SmallUpdateContext(iteration));
  EXPECT_TRUE(reports.ok()) << reports.status();
  return reports->at(0);
}

/// What the critic of a state says of each of its inputs in the batch, in the units of the rewards.
std::vector<double> ValuesOf(const policy::PolicySpec& spec, const policy::PolicyState& state,
                             const learner::PolicyTrainBatch& batch) {
  PreparedBatch prepared;
  EXPECT_TRUE(prepared.Prepare(spec, {}, batch).ok());
  const auto backend = *MakeFusedBackend(spec, std::make_shared<ThreadTeam>(1));
  FlatParameters parameters(policy::ParameterLayout::For(spec));
  std::copy(state.parameters().begin(), state.parameters().end(), parameters.values().begin());
  EXPECT_TRUE(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
  const policy::RunningMoments moments = state.Moments(policy::kValueMoments);
  const std::vector<float> spoken = *backend->Values();
  std::vector<double> values;
  for (const float value : spoken) {
    values.push_back(value * StandardDeviation(moments.variance[0]) + moments.mean[0]);
  }
  EXPECT_TRUE(backend->End().ok());
  return values;
}

double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// The largest difference of the gradients of one step, of the actor or of the critic.
double GradientDifference(const policy::PolicyState& a, const policy::PolicyState& b, bool actor) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(JointSpec());
  const auto split = static_cast<size_t>(layout.acting_size());
  const std::vector<float>& of_a = a.Floats(kAdamExpAvg);
  const std::vector<float>& of_b = b.Floats(kAdamExpAvg);
  double largest = 0;
  for (size_t i = actor ? 0 : split; i < (actor ? split : of_a.size()); ++i) {
    largest = std::max(largest, std::abs(10.0 * of_a[i] - 10.0 * of_b[i]));
  }
  return largest;
}

class MappoTricksTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }
};

TEST(MappoOptionsTest, OneOfTheTwoNormalizersOfValues) {
  PpoOptions options = PopArt();
  options.use_value_norm = true;
  EXPECT_EQ(std::string(ValidatePpoOptions(options).message()),
            "algorithm.use_popart is true, and so is use_value_norm; expected one of them: PopArt normalizes values, "
            "too. Set use_value_norm: false");
  EXPECT_TRUE(ValidatePpoOptions(PopArt()).ok());
}

TEST_F(MappoTricksTest, PopArtChangesNoValueWhileNothingIsLearnt) {
  for (const bool popart : {true, false}) {
    PpoOptions options = popart ? PopArt() : SmallUpdateOptions();
    options.learning_rate = 0;
    JointBatch batch(1);
    for (float& reward : batch.rewards) reward = 50 + 20 * reward;
    const auto trainer = MakeTrainer({JointSpec()}, options);
    const policy::PolicyState before = *trainer->ExportState(kSlot);
    const learner::PolicyUpdateReport report = Update(trainer.get(), batch.batch);
    const policy::PolicyState after = *trainer->ExportState(kSlot);
    EXPECT_GT(after.Moments(policy::kValueMoments).mean[0], 30);
    const double moved =
        LargestDifference(ValuesOf(JointSpec(), after, batch.rows()), ValuesOf(JointSpec(), before, batch.rows()));
    if (!popart) {
      EXPECT_GT(moved, 1) << "without it the critic says something else in the new units";
      continue;
    }
    EXPECT_LT(moved, 1e-5 * std::sqrt(after.Moments(policy::kValueMoments).variance[0]));
    const std::map<std::string, double> metrics(report.metrics.begin(), report.metrics.end());
    EXPECT_EQ(metrics.at("Policy/Return mean"), after.Moments(policy::kValueMoments).mean[0]);
    EXPECT_EQ(metrics.at("Policy/Return deviation"), std::sqrt(after.Moments(policy::kValueMoments).variance[0]));
  }
}

TEST_F(MappoTricksTest, AFrozenCriticSaysWhatItSaid) {
  for (const bool popart : {true, false}) {
    for (const bool whole : {true, false}) {
      PpoOptions options = popart ? PopArt() : SmallUpdateOptions();
      options.frozen_parameters = {whole ? "critic.*" : "critic.0.*"};
      JointBatch batch(1);
      for (float& reward : batch.rewards) reward = 50 + 20 * reward;
      const auto trainer = MakeTrainer({JointSpec()}, options);
      const policy::PolicyState before = *trainer->ExportState(kSlot);
      EXPECT_EQ(Update(trainer.get(), batch.batch).minibatch_steps, 12);
      const policy::PolicyState after = *trainer->ExportState(kSlot);
      const std::vector<double> said = ValuesOf(JointSpec(), before, batch.rows());
      if (whole) {
        EXPECT_EQ(ValuesOf(JointSpec(), after, batch.rows()), said) << popart;
        EXPECT_EQ(after.Moments(policy::kValueMoments).mean, before.Moments(policy::kValueMoments).mean);
      } else {
        EXPECT_NE(ValuesOf(JointSpec(), after, batch.rows()), said) << popart;
        EXPECT_GT(after.Moments(policy::kValueMoments).mean[0], 30);
      }
    }
  }
}

TEST_F(MappoTricksTest, PopArtIsRefusedHalfOfItsLayer) {
  PpoOptions options = PopArt();
  options.frozen_parameters = {"critic.*.weight"};
  const auto host = MakePpoHost({JointSpec()}, {options}, 1, [](const policy::PolicySpec& spec) {
    return MakeFusedBackend(spec, std::make_shared<ThreadTeam>(1));
  });
  EXPECT_THAT(std::string(host.status().message()), testing::HasSubstr("expected both or none with use_popart"));
}

TEST_F(MappoTricksTest, MomentsOfStatesAreOfAgentsThatAreThere) {
  policy::PolicySpec spec = JointSpec();
  spec.normalize_state = true;
  const JointBatch batch(1);
  const auto trainer = MakeTrainer({spec}, SmallUpdateOptions());
  EXPECT_EQ(StateMomentsOf(*trainer->ExportState(kSlot)), InitialColumnMoments(12));
  Update(trainer.get(), batch.batch);
  const ColumnMoments moments = StateMomentsOf(*trainer->ExportState(kSlot));
  std::vector<double> sum(12, 0), count(12, 0);
  for (size_t row = 0; row < batch.critic_state.size() / 12; ++row) {
    if (std::count(batch.critic_row.begin(), batch.critic_row.end(), row) == 0) continue;
    for (size_t c = 0; c < 9; ++c) {
      if (batch.critic_state[row * 12 + 9 + (c < 3 ? 0 : c < 7 ? 1 : 2)] == 0) continue;
      sum[c] += batch.critic_state[row * 12 + c];
      ++count[c];
    }
  }
  EXPECT_EQ(moments.count, count);
  for (size_t c = 0; c < 9; ++c) EXPECT_NEAR(moments.mean[c], sum[c] / count[c], 1e-12) << c;
  EXPECT_LT(count[0], static_cast<double>(batch.critic_state.size()) / 12);
  EXPECT_EQ(moments.variance[9], 1) << "bits are not observed";
  Update(trainer.get(), batch.batch, 1);
  EXPECT_EQ(StateMomentsOf(*trainer->ExportState(kSlot)).count[0], 2 * count[0]);
}

TEST_F(MappoTricksTest, GoesOnFromItsStateWithTheSameBits) {
  policy::PolicySpec spec = JointSpec();
  spec.normalize_state = true;
  spec.normalize_observations = true;
  PpoOptions options = PopArt();
  options.use_value_active_masks = false;
  options.death_masking = true;
  const auto whole = MakeTrainer({spec}, options);
  const auto first = MakeTrainer({spec}, options);
  const auto second = MakeTrainer({spec}, options);
  for (int64_t i = 0; i < 4; ++i) {
    const JointBatch batch(static_cast<uint64_t>(i), true, spec);
    Update(whole.get(), batch.batch, i);
    if (i == 2) {
      ASSERT_TRUE(second->ImportState(*first->ExportState(kSlot), kSlot).ok());
    }
    Update(i < 2 ? first.get() : second.get(), batch.batch, i);
  }
  policy::ExpectSameBits(*whole->ExportState(kSlot), *second->ExportState(kSlot));
  EXPECT_GT(StateMomentsOf(*whole->ExportState(kSlot)).count[0], 50);
}

TEST_F(MappoTricksTest, EvictedAndReloadedTrainToTheSameBits) {
  policy::PolicySpec spec = JointSpec();
  spec.normalize_state = true;
  std::vector<policy::PolicySpec> specs = {spec, spec};
  specs[1].id = policy::PolicyId("q");
  policy::FakeBlobStore blobs;
  const auto all = MakeTrainer(specs, PopArt());
  const auto few =
      MakeTrainer(specs, PopArt(), {/*capacity=*/1, /*states_are_swappable=*/true, /*host budget=*/0}, &blobs);
  for (int64_t i = 0; i < 3; ++i) {
    for (const int32_t slot : {0, 1}) {
      JointBatch batch(static_cast<uint64_t>(2 * i + slot));
      batch.rows().policy = PolicySlot(slot);
      Update(all.get(), batch.batch, i);
      Update(few.get(), batch.batch, i);
    }
  }
  EXPECT_GE(few->policies().map_stats().evictions, 4);
  for (const int32_t slot : {0, 1}) {
    policy::ExpectSameBits(*all->ExportState(PolicySlot(slot)), *few->ExportState(PolicySlot(slot)));
  }
}

TEST_F(MappoTricksTest, ALossWithoutItsMaskTakesDeadAgentsAndTheOtherDoesNot) {
  const JointBatch batch(1, /*deaths=*/true);
  const auto state_of = [&](bool policy_masks, bool value_masks) {
    PpoOptions options = OneStep();
    options.use_value_norm = false;  // or the moments would differ, too
    options.use_policy_active_masks = policy_masks;
    options.use_value_active_masks = value_masks;
    const auto trainer = MakeTrainer({JointSpec()}, options);
    const learner::PolicyUpdateReport report = Update(trainer.get(), batch.batch);
    EXPECT_EQ(report.trained_rows, kRows - 13);
    EXPECT_EQ(report.minibatch_steps, 1);
    return *trainer->ExportState(kSlot);
  };
  const policy::PolicyState masked = state_of(true, true);
  const policy::PolicyState value = state_of(true, false);
  EXPECT_LT(GradientDifference(masked, value, /*actor=*/true), 1e-6);
  EXPECT_GT(GradientDifference(masked, value, /*actor=*/false), 1e-3);
  const policy::PolicyState policy = state_of(false, true);
  EXPECT_GT(GradientDifference(masked, policy, /*actor=*/true), 1e-3);
  EXPECT_LT(GradientDifference(masked, policy, /*actor=*/false), 1e-6);
  const policy::PolicyState both = state_of(false, false);
  EXPECT_LT(GradientDifference(both, policy, /*actor=*/true), 1e-6);
  EXPECT_LT(GradientDifference(both, value, /*actor=*/false), 1e-6);
}

TEST_F(MappoTricksTest, WhereEverybodyIsDeadTheCriticLearnsAlone) {
  JointBatch batch(1, /*deaths=*/true);
  std::fill(batch.dead.begin(), batch.dead.end(), uint8_t{0});
  PpoOptions options = OneStep();
  options.use_value_active_masks = false;
  const auto trainer = MakeTrainer({JointSpec()}, options);
  const policy::PolicyState before = *trainer->ExportState(kSlot);
  const learner::PolicyUpdateReport report = Update(trainer.get(), batch.batch);
  EXPECT_EQ(report.trained_rows, 0);
  EXPECT_EQ(report.minibatch_steps, 1);
  EXPECT_EQ(report.skipped_steps, 0);
  const policy::PolicyState after = *trainer->ExportState(kSlot);
  EXPECT_EQ(GradientDifference(before, after, /*actor=*/true), 0);
  EXPECT_GT(GradientDifference(before, after, /*actor=*/false), 1e-3);
  // With the mask there is nothing to do.
  options.use_value_active_masks = true;
  EXPECT_EQ(Update(MakeTrainer({JointSpec()}, options).get(), batch.batch).minibatch_steps, 0);
}

TEST_F(MappoTricksTest, WhatIsLeftOutNeverCounts) {
  std::vector<policy::PolicyState> states;
  for (const float change : {0.0f, 3.0f}) {
    JointBatch batch(1, /*deaths=*/true);
    learner::TrainSegment& left_out = batch.rows().segments[3];
    left_out.trains = false;
    for (int64_t row = left_out.first_row; row < left_out.first_row + left_out.rows; ++row) {
      batch.dead[static_cast<size_t>(row)] = 0;
      batch.logp[static_cast<size_t>(row)] += change;
      batch.rewards[static_cast<size_t>(row)] += change;
      for (size_t c = 0; c < 3; ++c) batch.obs[static_cast<size_t>(row) * 3 + c] += change;
    }
    PpoOptions options = SmallUpdateOptions();
    options.use_policy_active_masks = options.use_value_active_masks = false;
    const auto trainer = MakeTrainer({JointSpec()}, options);
    Update(trainer.get(), batch.batch);
    states.push_back(*trainer->ExportState(kSlot));
  }
  policy::ExpectSameBits(states[0], states[1]);
}

TEST_F(MappoTricksTest, DeathMaskingHidesFromTheCriticWhatTheDeadSee) {
  for (const bool masking : {true, false}) {
    std::vector<policy::PolicyState> states;
    for (const float change : {0.0f, 3.0f}) {
      policy::PolicySpec spec = JointSpec();
      spec.SetCriticInput(NetworkInput::kObservation, 0);
      RandomBatch batch(spec, kSmallUpdateSegments, 1, /*inactive_rows=*/true);
      for (int64_t row = 0; row < kRows; ++row) {
        if (batch.agent_mask[static_cast<size_t>(row)] != 0) continue;
        for (size_t c = 0; c < 3; ++c) batch.obs[static_cast<size_t>(row) * 3 + c] += change;
      }
      // The policy does not read the rows of the dead.
      PpoOptions options = SmallUpdateOptions();
      options.use_value_active_masks = false;
      options.death_masking = masking;
      const auto trainer = MakeTrainer({spec}, options);
      Update(trainer.get(), batch.batch);
      states.push_back(*trainer->ExportState(kSlot));
    }
    if (masking) {
      policy::ExpectSameBits(states[0], states[1]);
    } else {
      EXPECT_NE(states[0].parameters(), states[1].parameters());
    }
  }
}

}  // namespace
}  // namespace troupe::training
