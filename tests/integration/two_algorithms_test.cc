// PPO on one cartpole and A2C on another, in one run: from its configuration through the update loop, with a policy
// that comes while it goes on, to what a resume would train it as.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/policy/policy_spec.h"
#include "lib/run/learner/run_start.h"
#include "lib/run/learner/testing/run_in_process.h"
#include "lib/training/make_trainer.h"
#include "lib/training/registry.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

using learner::StepOutcome;
using policy::PolicyId;
using policy::PolicySlot;

constexpr char kConfig[] = R"(
env: {name: cartpole, args: {num_agents: 2}}
algorithm: {name: ippo, train_batch_size: 512, minibatch_size: 64, num_epochs: 3}
multi_agent: {policies: {left: {}, right: {algorithm: {name: a2c}}}}
model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]}
num_workers: 0
num_envs_per_worker: 8
stop: {updates: 6}
)";

/// Keeps what the trainer behind it reports.
class ReportingTrainer final : public learner::Trainer {
 public:
  explicit ReportingTrainer(std::unique_ptr<learner::Trainer> trainer) : trainer_(std::move(trainer)) {}

  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const learner::TrainBatch& batch,
                                                                  const learner::UpdateContext& context) override {
    auto made = trainer_->Update(batch, context);
    if (made.ok()) reports.push_back(*made);
    return made;
  }
  absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(PolicySlot policy) override { return trainer_->Snapshot(policy); }
  absl::StatusOr<policy::PolicyState> ExportState(PolicySlot policy) override { return trainer_->ExportState(policy); }
  absl::Status ImportState(const policy::PolicyState& state, PolicySlot policy) override {
    return trainer_->ImportState(state, policy);
  }
  absl::Status AddPolicy(PolicySlot slot, const policy::PolicySpec& spec, policy::PolicyState state,
                         PolicySlot like) override {
    return trainer_->AddPolicy(slot, spec, std::move(state), like);
  }
  absl::Status RemovePolicy(PolicySlot slot) override { return trainer_->RemovePolicy(slot); }
  std::vector<policy::LearnGroup> Groups() const override { return trainer_->Groups(); }

  std::vector<std::vector<learner::PolicyUpdateReport>> reports;  ///< by update

 private:
  const std::unique_ptr<learner::Trainer> trainer_;
};

class NoStore final : public learner::CheckpointStore {
 public:
  absl::Status Save(const learner::LearnerState& /*state*/, bool /*is_best*/) override { return absl::OkStatus(); }
  absl::Status SaveTo(const learner::LearnerState& /*state*/, const std::string& /*path*/) override {
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Prune(int /*keep*/) override { return 0; }
};

class TwoAlgorithmsTest : public testing::Test {
 protected:
  std::unique_ptr<learner::Trainer> MakeTrainer(const run::RunSetup& setup, const policy::PolicyTable& policies) {
    std::vector<policy::AlgorithmSpec> algorithms;
    for (const size_t as : run::TrainedAs(setup, policies)) algorithms.push_back(setup.run.algorithms[as]);
    auto trainer = training::MakeTrainer(policies.Specs().values(), std::move(algorithms),
                                         {.device = "cpu", .num_threads = 1}, setup.run.seed);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    auto reporting = std::make_unique<ReportingTrainer>(*std::move(trainer));
    trainer_ = reporting.get();
    return reporting;
  }

  NoStore store_;
  ReportingTrainer* trainer_ = nullptr;
  run::RunInProcess run_{
      {.config = kConfig,
       .make_trainer = [this](const run::RunSetup& setup,
                              const policy::PolicyTable& policies) { return MakeTrainer(setup, policies); },
       .draw = [](const policy::PolicySpec& spec, const policy::AlgorithmSpec& algorithm,
                  uint64_t seed) { return training::InitialState(spec, algorithm, seed); },
       .store = &store_}};
};

TEST_F(TwoAlgorithmsTest, EachPolicyIsTrainedByItsOwn) {
  std::vector<policy::PolicyState> before;
  for (int32_t slot = 0; slot < 2; ++slot) before.push_back(*trainer_->ExportState(PolicySlot(slot)));
  // What is lost before there is a checkpoint begins anew as its algorithm would have it.
  for (int32_t slot = 0; slot < 2; ++slot) {
    const auto first = run_.cache->Fallback(PolicySlot(slot));
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->parameters(), before[static_cast<size_t>(slot)].parameters());
  }
  absl::StatusOr<int64_t> unclear, clear;
  run_.control->ChangePolicies({}, policy::AddPolicy{.id = PolicyId("next")},
                               [&](absl::StatusOr<int64_t> revision) { unclear = std::move(revision); });
  run_.control->ChangePolicies({}, policy::AddPolicy{.id = PolicyId("second"), .like = PolicyId("right")},
                               [&](absl::StatusOr<int64_t> revision) { clear = std::move(revision); });
  const StepOutcome outcome = run_.StepToTheEnd();
  EXPECT_EQ(outcome.kind, StepOutcome::Kind::kStopped) << outcome.reason << outcome.status;
  ASSERT_EQ(trainer_->reports.size(), 6u);
  for (const std::vector<learner::PolicyUpdateReport>& update : trainer_->reports) {
    ASSERT_GE(update.size(), 2u);
    // An agent whose pole has fallen waits for the other one's.
    EXPECT_GT(update[0].trained_rows, 256);
    EXPECT_LE(update[0].trained_rows, 512);
    EXPECT_EQ(update[0].minibatch_steps, 3 * ((update[0].trained_rows + 63) / 64)) << "PPO, as the run says";
    EXPECT_GT(update[1].trained_rows, 256);
    EXPECT_EQ(update[1].minibatch_steps, 1) << "A2C: the whole batch at once";
  }
  for (int32_t slot = 0; slot < 2; ++slot) {
    EXPECT_NE(trainer_->ExportState(PolicySlot(slot))->parameters(), before[static_cast<size_t>(slot)].parameters());
  }
  EXPECT_EQ(unclear.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unclear.status().message()), testing::HasSubstr("they are trained by ppo and a2c"));
  ASSERT_TRUE(clear.ok()) << clear.status();
  // It came like the second, and that is what a resumed run trains it as.
  run_.setup.resumed.emplace();
  run_.setup.resumed->trained_as = {PolicyId("left"), PolicyId("right"), PolicyId("right")};
  const std::vector<size_t> trained_as = run::TrainedAs(run_.setup, *run_.learner->Policies());
  ASSERT_EQ(trained_as.size(), 3u);
  EXPECT_EQ(run_.setup.run.algorithms[trained_as[2]].name, "a2c");
}

}  // namespace
}  // namespace troupe::integration
