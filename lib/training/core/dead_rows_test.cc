// Agents that an environment goes on observing after they died (agent mask 0) while their team is still paid: the
// values of what they saw alive, by default settings.

#include <algorithm>
#include <memory>
#include <vector>

#include "lib/base/testing/processor.h"
#include "lib/learner/testing/owned_train_batch.h"
#include "lib/policy/testing.h"
#include "lib/training/a2c/a2c_options.h"
#include "lib/training/core/moments.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/ppo/ppo_options.h"
#include "lib/training/registry.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr int64_t kSteps = 6;
constexpr int64_t kEpisodes = 20;
constexpr int64_t kRows = kSteps * kEpisodes;
// Worked backwards with gamma 0.9: 1, 1 + 0.9, 1 + 0.9 x 1.9 = 2.71, 3 + 0.9 x 2.71, ...
const std::vector<float> kRewards = {3, 3, 3, 1, 1, 1};
const std::vector<double> kValues = {10.1056, 7.8951, 5.439, 2.71, 1.9, 1};

policy::PolicySpec Spec() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.observation_space = *space::Space::Box(0, 1, {kSteps});
  spec.mutable_critic()->hidden_sizes = {16};
  return spec;
}

/// Episodes of an agent that sees a one-hot of the step, dies after the third and is terminated after the sixth.
struct Deaths : learner::OwnedTrainBatch {
  Deaths() {
    learner::PolicyTrainBatch rows;
    rows.policy = policy::PolicySlot(0);
    for (int64_t e = 0; e < kEpisodes; ++e) {
      rows.segments.push_back({rows.rows, kSteps, -1, base::EnvId(static_cast<uint32_t>(e)), 0, base::AgentSlot(0)});
      for (int64_t step = 0; step < kSteps; ++step) {
        for (int64_t i = 0; i < kSteps; ++i) obs.push_back(i == step ? 1.0f : 0.0f);
        rewards.push_back(kRewards[static_cast<size_t>(step)]);
        agent_mask.push_back(step < 3 ? 1 : 0);
        logp.push_back(-0.7f);
        actions.push_back({.i32 = static_cast<int32_t>((e + step) % 2)});
        slot.push_back(0);
      }
      rows.rows += kSteps;
    }
    batch.env_steps = batch.agent_steps = rows.rows;
    Add(std::move(rows));
  }
};

/// The critic's value of each step after `updates` of the same batch.
std::vector<double> Learned(const policy::AlgorithmSpec& algorithm, int64_t updates) {
  const policy::PolicySpec spec = Spec();
  const Deaths deaths;
  const auto team = std::make_shared<ThreadTeam>(1);
  const auto host = TrainerHost::Make({spec}, {algorithm}, {.seed = 1, .team = team}, &FindAlgorithm,
                                      [team](const policy::PolicySpec& of) { return MakeFusedBackend(of, team); });
  EXPECT_TRUE(host.ok()) << host.status();
  for (int64_t i = 0; i < updates; ++i) {
    const auto reports =
        (*host)->Update(deaths.batch, {.seed = 1, .iteration = i, .env_steps = i * kRows, .next_version = {1, i + 1}});
    EXPECT_TRUE(reports.ok()) << reports.status();
  }
  const policy::PolicyState state = *(*host)->ExportState(policy::PolicySlot(0));
  PreparedBatch prepared;
  EXPECT_TRUE(prepared.Prepare(spec, {}, deaths.batch.policies[0]).ok());
  FlatParameters parameters(policy::ParameterLayout::For(spec));
  std::copy(state.parameters().begin(), state.parameters().end(), parameters.values().begin());
  const auto backend = *MakeFusedBackend(spec, team);
  EXPECT_TRUE(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
  const std::vector<float> spoken = *backend->Values();
  EXPECT_TRUE(backend->End().ok());
  const policy::RunningMoments moments = state.Moments(policy::kValueMoments);
  std::vector<double> values;
  for (int64_t step = 0; step < kSteps; ++step) {
    values.push_back(spoken[static_cast<size_t>(step)] * StandardDeviation(moments.variance[0]) + moments.mean[0]);
  }
  return values;
}

class DeadRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }
};

/// Nothing but the rate and the discount is other than in `spec`.
policy::AlgorithmSpec Quick(policy::AlgorithmSpec spec, int64_t updates) {
  spec.options["gamma"] = 0.9;
  spec.options["lr"] = policy::ScheduleValue{1e-2, 1e-4, updates * kRows};
  return spec;
}

TEST_F(DeadRowsTest, PpoValuesTheLivingExactly) {
  const std::vector<double> values = Learned(Quick(PpoSpec({}), 150), 150);
  for (size_t step = 0; step < kValues.size(); ++step) EXPECT_NEAR(values[step], kValues[step], 0.05) << step;
}

TEST_F(DeadRowsTest, A2cValuesTheLivingExactly) {
  const std::vector<double> values = Learned(Quick(A2cSpec({}), 1500), 1500);
  for (size_t step = 0; step < kValues.size(); ++step) EXPECT_NEAR(values[step], kValues[step], 0.05) << step;
}

}  // namespace
}  // namespace troupe::training
