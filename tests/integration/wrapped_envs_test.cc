// What stands between environments and policies, from YAML to PPO: groups, bytes, masks and mixed actions are learned
// from.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/training/make_trainer.h"
#include "tests/integration/turn_based_run.h"
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

/// `updates` updates of PPO on testing/signals. An action that a mask forbids would end the episode with an error.
class WrappedEnvsTest : public testing::Test {
 protected:
  WrappedEnvsTest() { envs::RegisterAllEnvs(registry_); }

  void Train(const std::string& env, size_t updates, const std::string& algorithm = "") {
    const auto config = config::RunConfig::FromYaml(
        absl::StrCat("env: {name: testing/signals, ", env, "}\nnum_workers: 0\nnum_envs_per_worker: 8\n",
                     "algorithm: {train_batch_size: 256, minibatch_size: 64, lr: 3.0e-3, num_epochs: 6", algorithm,
                     "}\n"),
        "wrapped.yaml");
    ASSERT_TRUE(config.ok()) << config.status();
    auto run = config::ResolveRun(*config, registry_);
    ASSERT_TRUE(run.ok()) << run.status();
    run_ = std::make_unique<config::ResolvedRun>(*std::move(run));
    auto trainer =
        training::MakeTrainer(run_->policies, run_->algorithms, {.device = "cpu", .num_threads = 1}, run_->seed);
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    trainer_ = *std::move(trainer);
    trained_ = std::make_unique<TurnBasedRun>(*run_, registry_, trainer_.get(), 1);
    trained_->TrainTo(updates);
    ASSERT_EQ(trained_->updates().size(), updates);
    EXPECT_TRUE(learner::CheckConservation(trained_->learner().Status().progress.rows).ok());
  }
  double FirstReward() const { return trained_->updates().front().policies[0].reward_mean; }
  double LastReward() const { return trained_->updates().back().policies[0].reward_mean; }

  env::EnvRegistry registry_;
  std::unique_ptr<config::ResolvedRun> run_;
  std::unique_ptr<learner::Trainer> trainer_;
  std::unique_ptr<TurnBasedRun> trained_;
};

TEST_F(WrappedEnvsTest, ImagesOfBytesAreLearnedFrom) {
  Train("args: {}", 8);
  const RecordingTrainer::Recorded& rows = trained_->updates()[0].policies[0];
  EXPECT_EQ(rows.rows.size(), 512u);
  for (const float element : rows.obs[0]) EXPECT_TRUE(element == 0.0f || element == 1.0f) << "255 is 1 to the networks";
  // One of the two that are allowed at random, then the right one.
  EXPECT_NEAR(FirstReward(), 0.5, 0.1);
  EXPECT_GT(LastReward(), 0.9);
}

TEST_F(WrappedEnvsTest, MixedActionsWithMasksFromDictsAreLearned) {
  Train("args: {dict: true, hybrid: true}", 16, ", name: mappo, use_global_state: true");
  EXPECT_EQ(run_->policies[0].mask_size(), 7);
  EXPECT_EQ(run_->policies[0].critic_state_size(), 2);
  EXPECT_EQ(trained_->updates()[0].policies[0].obs[0].size(), 24u + 2u) << "neither mask nor state, but which agent";
  // 0.5 for the pick and, with aims around 0 that are clipped to [-1, 1], a little for the aim.
  EXPECT_LT(FirstReward(), 0.85);
  EXPECT_GT(LastReward(), 1.1);
}

TEST_F(WrappedEnvsTest, AGroupIsTrainedAsOneAgent) {
  Train("args: {}, groups: {both: [agent_1, agent_0]}, reward_scale: 0.5", 16, ", normalize_observations: true");
  EXPECT_EQ(run_->agent_ids(), std::vector<std::string>{"both"});
  const RecordingTrainer::Batch& first = trained_->updates()[0];
  EXPECT_EQ(first.agent_steps, 256) << "a group's step is one agent's";
  EXPECT_EQ(first.policies[0].obs[0].size(), 48u);
  // The sum of both, halved.
  EXPECT_NEAR(FirstReward(), 0.5, 0.1);
  EXPECT_GT(LastReward(), 0.8);
}

}  // namespace
}  // namespace troupe::integration
