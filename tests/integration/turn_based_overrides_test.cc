// Overrides per policy and agent, from YAML to what PPO does with the rows of testing/turn_based.

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

double Metric(const learner::PolicyUpdateReport& report, const std::string& tag) {
  for (const auto& [name, value] : report.metrics) {
    if (name == tag) return value;
  }
  ADD_FAILURE() << "no metric " << tag;
  return 0;
}

TEST(TurnBasedOverridesTest, EveryPolicyTrainsByItsOwnSettings) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  const auto run = ResolveTurnBased(R"(
algorithm: {name: ippo, train_batch_size: 20, lr: 1.0e-3, num_epochs: 3, minibatch_size: 4}
multi_agent:
  policy_mapping: per_agent
  policies:
    alice: {}
    bob: {algorithm: {lr: 0, num_minibatches: 2}}
    carol: {algorithm: {lr: 2.0e-3, num_epochs: 7}}
  agents:
    carol: {algorithm: {num_epochs: 5}, model: {actor_hidden_sizes: [8]}}
    "*": {}
)",
                                    registry);
  ASSERT_TRUE(run.ok()) << run.status();
  auto trainer = training::MakeTrainer(run->policies, run->algorithms, {.device = "cpu", .num_threads = 1}, run->seed);
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  std::vector<policy::PolicyState> before;
  for (int32_t slot = 0; slot < 3; ++slot) before.push_back(*(*trainer)->ExportState(policy::PolicySlot(slot)));
  TurnBasedRun trained(*run, registry, trainer->get(), 1);
  trained.TrainTo(1);
  ASSERT_EQ(trained.updates().size(), 1u);
  const std::vector<learner::PolicyUpdateReport>& reports = trained.updates()[0].reports;
  ASSERT_EQ(reports.size(), 3u);
  // alice has 10 active rows: 3 epochs of ceil(10 / 4) minibatches, as the run says.
  EXPECT_EQ(reports[0].trained_rows, 10);
  EXPECT_EQ(reports[0].minibatch_steps, 3 * 3);
  EXPECT_EQ(Metric(reports[0], "Policy/Learning rate"), 1e-3);
  // bob has 4: two minibatches of the 20 rows that he might have had are one of these, in the run's 3 epochs.
  EXPECT_EQ(reports[1].trained_rows, 4);
  EXPECT_EQ(reports[1].minibatch_steps, 3 * 1);
  EXPECT_EQ(Metric(reports[1], "Policy/Learning rate"), 0);
  // carol has 4, and 4 that are dead, whose values the critic learns: two minibatches. The agent's epochs come before
  // the policy's, the policy's rate before the run's.
  EXPECT_EQ(reports[2].trained_rows, 4);
  EXPECT_EQ(reports[2].minibatch_steps, 5 * 2);
  EXPECT_EQ(Metric(reports[2], "Policy/Learning rate"), 2e-3);
  // A rate of 0 leaves every weight as it was.
  const auto parameters = [&trainer](int32_t slot) {
    return (*trainer)->ExportState(policy::PolicySlot(slot))->parameters();
  };
  EXPECT_NE(parameters(0), before[0].parameters());
  EXPECT_EQ(parameters(1), before[1].parameters());
  EXPECT_NE(parameters(2), before[2].parameters());
  EXPECT_LT(before[2].parameters().size(), before[1].parameters().size()) << "the agent's own model";
}

}  // namespace
}  // namespace troupe::integration
