// Policies that train side by side, each on one thread, against the same policies trained one after another by the
// whole team.

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/testing/ppo_host.h"
#include "lib/training/testing/random_batch.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::PolicySlot;

learner::UpdateContext Context(int64_t iteration) {
  return {.seed = 3, .iteration = iteration, .env_steps = iteration, .next_version = {1, iteration + 1}};
}

PpoOptions Options() {
  PpoOptions options;
  options.learning_rate = 1e-3;
  options.num_epochs = 2;
  options.minibatch_size = 16;
  return options;
}

policy::PolicySpec Spec(int index) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.id = policy::PolicyId(absl::StrCat("p", index));
  spec.action_space = *space::Space::Discrete(4);
  return spec;
}

/// Some policies, their options, and a batch of each.
struct Population {
  void Add(const policy::PolicySpec& spec, const PpoOptions& ppo, const std::vector<int64_t>& segments, uint64_t seed,
           bool inactive_rows = false) {
    specs.push_back(spec);
    options.push_back(ppo);
    batches.push_back(std::make_unique<RandomBatch>(spec, segments, seed, inactive_rows));
    batches.back()->rows().policy = PolicySlot(static_cast<int32_t>(specs.size()) - 1);
  }
  std::unique_ptr<TrainerHost> Make(int threads, const PolicyStoreOptions& store = {}) const {
    const auto team = std::make_shared<ThreadTeam>(threads);
    const auto backends = std::make_shared<FusedBackends>(team);
    auto trainer = MakePpoHost(
        specs, options, 1, [backends](const policy::PolicySpec& spec) { return backends->Make(spec); }, team,
        tensor::TensorAllocator::Pageable(), store);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    return *std::move(trainer);
  }
  learner::TrainBatch All() const {
    learner::TrainBatch all;
    for (const auto& batch : batches) all.policies.push_back(batch->rows());
    return all;
  }

  std::vector<policy::PolicySpec> specs;
  std::vector<PpoOptions> options;
  std::vector<std::unique_ptr<RandomBatch>> batches;
};

void ExpectNear(absl::Span<const float> a, absl::Span<const float> b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::isfinite(a[i])) << what << i;
    ASSERT_NEAR(a[i], b[i], 1e-5) << what << i;
  }
}

class StackedTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }
};

TEST_P(StackedTest, EqualsOneAfterAnother) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    base::PhiloxSequence random(base::PhiloxKey::Make(seed, base::RandomStream::kTest), {.env_id = 77});
    Population population;
    policy::PolicySpec shape = Spec(0);
    const bool gaussian = random.Below(2) == 0;
    if (gaussian) shape.action_space = *space::Space::Box(-1, 1, {3});
    shape.has_action_mask = !gaussian && random.Below(2) == 0;
    shape.normalize_observations = random.Below(2) == 0;
    if (random.Below(3) == 0) {
      shape.SetCriticInput(policy::NetworkInput::kJointObservation, 7);
      shape.agent_id_size = 2;
    }
    const int policies = 2 + static_cast<int>(random.Below(7));
    const int other_shape = random.Below(2) == 0 ? static_cast<int>(random.Below(policies)) : -1;
    const int not_finite = random.Below(3) == 0 ? static_cast<int>(random.Below(policies)) : -1;
    for (int p = 0; p < policies; ++p) {
      policy::PolicySpec spec = shape;
      spec.id = policy::PolicyId(absl::StrCat("p", p));
      if (p == other_shape) spec.actor.hidden_sizes = {9, 24};
      PpoOptions options = Options();
      options.use_value_norm = random.Below(2) == 0;
      options.minibatch_size = 8 + random.Below(60);
      options.num_epochs = 1 + random.Below(4);
      if (random.Below(3) == 0) options.target_kl = 1e-4;
      std::vector<int64_t> segments(1 + random.Below(6));
      for (int64_t& rows : segments) rows = 1 + random.Below(25);
      population.Add(spec, options, segments, seed * 100 + static_cast<uint64_t>(p), random.Below(2) == 0);
      if (p == not_finite) population.batches.back()->rewards[0] = std::numeric_limits<float>::infinity();
    }
    const auto stacked = population.Make(GetParam());
    const auto one_by_one = population.Make(GetParam());
    for (int64_t iteration = 0; iteration < 2; ++iteration) {
      const auto reports = stacked->Update(population.All(), Context(iteration));
      ASSERT_TRUE(reports.ok()) << reports.status();
      for (int p = 0; p < policies; ++p) {
        const auto report = one_by_one->Update(population.batches[p]->batch, Context(iteration));
        ASSERT_TRUE(report.ok()) << report.status();
        const learner::PolicyUpdateReport& got = reports->at(p);
        const learner::PolicyUpdateReport& expected = report->at(0);
        EXPECT_EQ(got.policy, expected.policy);
        EXPECT_EQ(got.trained_rows, expected.trained_rows);
        EXPECT_EQ(got.epochs, expected.epochs);
        EXPECT_EQ(got.minibatch_steps, expected.minibatch_steps);
        EXPECT_EQ(got.skipped_steps, expected.skipped_steps);
      }
    }
    for (int32_t p = 0; p < policies; ++p) {
      SCOPED_TRACE(absl::StrCat("policy ", p));
      const policy::PolicyState a = *stacked->ExportState(PolicySlot(p));
      const policy::PolicyState b = *one_by_one->ExportState(PolicySlot(p));
      ExpectNear(a.parameters(), b.parameters(), "parameter ");
      ExpectNear(a.Floats(kAdamExpAvg), b.Floats(kAdamExpAvg), "exp_avg ");
      ExpectNear(a.Floats(kAdamExpAvgSq), b.Floats(kAdamExpAvgSq), "exp_avg_sq ");
      EXPECT_EQ(a.Integer(kAdamSteps), b.Integer(kAdamSteps));
      EXPECT_EQ(a.Integer(kTrainedRows), b.Integer(kTrainedRows));
      EXPECT_EQ(a.Integer(kSkippedUpdates), b.Integer(kSkippedUpdates));
      EXPECT_EQ(a.Moments(policy::kObservationMoments).mean, b.Moments(policy::kObservationMoments).mean);
      ASSERT_EQ(a.Moments(policy::kValueMoments).mean.size(), b.Moments(policy::kValueMoments).mean.size());
      for (size_t i = 0; i < a.Moments(policy::kValueMoments).mean.size(); ++i) {
        EXPECT_NEAR(a.Moments(policy::kValueMoments).mean[i], b.Moments(policy::kValueMoments).mean[i], 1e-5);
      }
    }
  }
}

TEST_P(StackedTest, TargetKlStopsOnlyWhoPassesIt) {
  Population population;
  for (int p = 0; p < 8; ++p) {
    PpoOptions options = Options();
    options.num_epochs = 5;
    options.learning_rate = 1e-2;
    if (p == 3) options.target_kl = 1e-9;
    population.Add(Spec(p), options, {20, 20}, static_cast<uint64_t>(p) + 1);
  }
  const auto reports = population.Make(GetParam())->Update(population.All(), Context(0));
  ASSERT_TRUE(reports.ok()) << reports.status();
  for (int p = 0; p < 8; ++p) EXPECT_EQ(reports->at(p).epochs, p == 3 ? 1 : 5) << p;
}

TEST_P(StackedTest, NoPolicyFeelsAnothersNumbersThatAreNotFinite) {
  Population population;
  for (int p = 0; p < 8; ++p) {
    policy::PolicySpec spec = Spec(p);
    spec.action_space = *space::Space::Box(-1, 1, {3});
    population.Add(spec, Options(), {static_cast<int64_t>(17 + p)}, static_cast<uint64_t>(p) + 1);
  }
  const auto clean = population.Make(GetParam());
  const auto spoilt = population.Make(GetParam());
  ASSERT_TRUE(clean->Update(population.All(), Context(0)).ok());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int bad : {0, 5}) {
    for (space::ActionWord& word : population.batches[bad]->actions) word.f32 = nan;
    for (float& reward : population.batches[bad]->rewards) reward = nan;
    for (float& value : population.batches[bad]->obs) value = nan;
  }
  const auto reports = spoilt->Update(population.All(), Context(0));
  ASSERT_TRUE(reports.ok()) << reports.status();
  for (int32_t p = 0; p < 8; ++p) {
    if (p == 0 || p == 5) {
      EXPECT_EQ(reports->at(p).minibatch_steps, 0);
      continue;
    }
    policy::ExpectSameBits(*clean->ExportState(PolicySlot(p)), *spoilt->ExportState(PolicySlot(p)));
  }
}

TEST_P(StackedTest, FewRowsStarveNobody) {
  for (const int64_t capacity : {100, 3}) {
    Population population;
    population.Add(Spec(0), Options(), {2000}, 1);
    for (int p = 1; p < 12; ++p) population.Add(Spec(p), Options(), {1}, static_cast<uint64_t>(p) + 1);
    const auto trainer = population.Make(GetParam(), {.capacity = capacity});
    for (int64_t iteration = 0; iteration < 3; ++iteration) {
      const auto reports = trainer->Update(population.All(), Context(iteration));
      ASSERT_TRUE(reports.ok()) << reports.status();
      for (int32_t p = 0; p < 12; ++p) {
        EXPECT_EQ(reports->at(p).trained_rows, p == 0 ? 2000 : 1);
        EXPECT_EQ(reports->at(p).minibatch_steps, p == 0 ? 2 * 125 : 2);
        EXPECT_EQ(trainer->ExportState(PolicySlot(p))->version, Context(iteration).next_version);
      }
    }
  }
}

TEST_P(StackedTest, AFewResidentOnesTrainToTheSameBits) {
  Population population;
  for (int p = 0; p < 10; ++p) {
    population.Add(Spec(p), Options(), {10 + p, 7}, static_cast<uint64_t>(p) + 1);
  }
  const auto all = population.Make(GetParam());
  const auto few = population.Make(GetParam(), {.capacity = 4, .states_are_swappable = true});
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    ASSERT_TRUE(all->Update(population.All(), Context(iteration)).ok());
    ASSERT_TRUE(few->Update(population.All(), Context(iteration)).ok());
    EXPECT_LE(few->policies().map_stats().resident, 4);
  }
  for (int32_t p = 0; p < 10; ++p) {
    policy::ExpectSameBits(*all->ExportState(PolicySlot(p)), *few->ExportState(PolicySlot(p)));
  }
}

TEST_P(StackedTest, AFailedUpdateLeavesEveryPolicyAsItWas) {
  for (const int64_t capacity : {100, 2}) {
    Population population;
    for (int p = 0; p < 7; ++p) population.Add(Spec(p), Options(), {20}, static_cast<uint64_t>(p) + 1);
    const auto trainer = population.Make(GetParam(), {.capacity = capacity});
    ASSERT_TRUE(trainer->Update(population.All(), Context(0)).ok());
    std::vector<policy::PolicyState> before;
    for (int32_t p = 0; p < 7; ++p) before.push_back(*trainer->ExportState(PolicySlot(p)));
    learner::TrainBatch wrong = population.All();
    for (const size_t bad : {4, 5}) wrong.policies[bad].rewards = wrong.policies[bad].rewards.subspan(1);
    EXPECT_EQ(trainer->Update(wrong, Context(1)).status().code(), absl::StatusCode::kInvalidArgument);
    for (int32_t p = 0; p < 7; ++p) policy::ExpectSameBits(before[p], *trainer->ExportState(PolicySlot(p)));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, StackedTest, testing::Values(1, 2, 4));

}  // namespace
}  // namespace troupe::training
