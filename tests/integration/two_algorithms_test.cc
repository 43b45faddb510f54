// PPO on one cartpole and A2C on another, in one run: from its configuration through the update loop, with a policy
// that comes while it goes on, to what a resume would train it as.

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/await.h"
#include "lib/envs/register_all.h"
#include "lib/run/learner/local_sampler.h"
#include "lib/run/learner/policy_map_cache.h"
#include "lib/run/learner/run_setup.h"
#include "lib/run/learner/run_start.h"
#include "lib/run/learner/update_loop.h"
#include "lib/run/rollout_setup.h"
#include "lib/storage/testing.h"
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
};

class TwoAlgorithmsTest : public testing::Test {
 protected:
  TwoAlgorithmsTest() {
    envs::RegisterAllEnvs(registry_);
    const std::string path = scratch_.path() + "/run.yaml";
    std::ofstream(path) << kConfig;
    run::RunRequest request;
    request.config_path = path;
    request.directory = scratch_.path();
    request.name = "run";
    absl::StatusOr<run::RunSetup> setup = run::SetUpRun(request, registry_, base::Clock::Real());
    EXPECT_TRUE(setup.ok()) << setup.status();
    setup_ = *std::move(setup);
    const policy::PolicyTablePtr policies = *run::FirstPolicies(setup_);
    std::vector<policy::AlgorithmSpec> algorithms;
    for (const size_t as : run::TrainedAs(setup_, *policies)) algorithms.push_back(setup_.run.algorithms[as]);
    auto trainer = training::MakeTrainer(policies->Specs(), std::move(algorithms), {.device = "cpu", .num_threads = 1},
                                         setup_.run.seed);
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    trainer_ = std::make_unique<ReportingTrainer>(*std::move(trainer));
    reporter_ =
        *run::RunReporter::Open(setup_.run, "run", setup_.folder->directory(), 0, {.degradations = &degradations_});
    sampler_ = std::make_shared<run::LocalSampler>(setup_.run.policies.size());
    learner::LearnerDeps deps;
    deps.trainer = trainer_.get();
    deps.publisher = sampler_.get();
    auto learner = learner::Learner::Create(run::LearnerConfigOf(setup_, policies), deps);
    EXPECT_TRUE(learner.ok()) << learner.status();
    learner_ = *std::move(learner);
    binding_ = std::make_unique<rpc::LearnerBinding>(learner_.get());
    control_ = std::make_unique<run::ControlHandler>(learner_.get(), binding_.get(), &degradations_, "run");
    const run::DrawState draw = [](const policy::PolicySpec& spec, const policy::AlgorithmSpec& algorithm,
                                   uint64_t seed) { return training::InitialState(spec, algorithm, seed); };
    cache_ = std::make_unique<run::PolicyMapCache>(&setup_, draw);
    cache_->SetPolicies(policies);
    desk_ = std::make_unique<run::PolicyDesk>(run::PolicyDesk::Deps{.run = &setup_.run,
                                                                    .learner = learner_.get(),
                                                                    .trainer = trainer_.get(),
                                                                    .workers = binding_.get(),
                                                                    .control = control_.get(),
                                                                    .cache = cache_.get(),
                                                                    .draw = draw});
    evaluator_ = std::make_unique<run::RunEvaluator>(run::RunEvaluator::Deps{.run = &setup_.run,
                                                                             .registry = &registry_,
                                                                             .learner = learner_.get(),
                                                                             .trainer = trainer_.get(),
                                                                             .reporter = reporter_.get()});
    updates_ = std::make_unique<run::UpdateLoop>(run::UpdateLoop::Deps{.run = &setup_.run,
                                                                       .learner = learner_.get(),
                                                                       .reporter = reporter_.get(),
                                                                       .evaluator = evaluator_.get(),
                                                                       .checkpoints = &checkpoints_,
                                                                       .control = control_.get(),
                                                                       .policies = desk_.get(),
                                                                       .degradations = &degradations_},
                                                 0);
    EXPECT_EQ(learner_->Start(), absl::OkStatus());
    EXPECT_EQ(sampler_->Join(*run::MakeRolloutConfig(setup_.run, registry_), learner_.get()), absl::OkStatus());
    sampling_ = std::thread([this] { sampler_->Run(); });
  }
  ~TwoAlgorithmsTest() override {
    sampler_->Stop();
    if (sampling_.joinable()) sampling_.join();
  }

  StepOutcome StepToTheEnd() {
    const base::Deadline deadline = base::Deadline::After(absl::Seconds(120));
    while (!deadline.passed()) {
      const absl::StatusOr<StepOutcome> outcome = updates_->Step(absl::Milliseconds(20));
      EXPECT_TRUE(outcome.ok()) << outcome.status();
      if (!outcome.ok()) break;
      if (outcome->kind != StepOutcome::Kind::kWaiting && outcome->kind != StepOutcome::Kind::kUpdated) return *outcome;
    }
    return {};
  }

  const storage::ScratchDirectory scratch_;
  env::EnvRegistry registry_;
  run::RunSetup setup_;
  run::Degradations degradations_;
  NoStore store_;
  run::CheckpointLoop checkpoints_{&store_, &degradations_};
  std::unique_ptr<ReportingTrainer> trainer_;
  std::unique_ptr<run::RunReporter> reporter_;
  std::shared_ptr<run::LocalSampler> sampler_;
  std::unique_ptr<learner::Learner> learner_;
  std::unique_ptr<rpc::LearnerBinding> binding_;
  std::unique_ptr<run::ControlHandler> control_;
  std::unique_ptr<run::PolicyMapCache> cache_;
  std::unique_ptr<run::PolicyDesk> desk_;
  std::unique_ptr<run::RunEvaluator> evaluator_;
  std::unique_ptr<run::UpdateLoop> updates_;
  std::thread sampling_;
};

TEST_F(TwoAlgorithmsTest, EachPolicyIsTrainedByItsOwn) {
  std::vector<policy::PolicyState> before;
  for (int32_t slot = 0; slot < 2; ++slot) before.push_back(*trainer_->ExportState(PolicySlot(slot)));
  // What is lost before there is a checkpoint begins anew as its algorithm would have it.
  for (int32_t slot = 0; slot < 2; ++slot) {
    const auto first = cache_->Fallback(PolicySlot(slot));
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->parameters(), before[static_cast<size_t>(slot)].parameters());
  }
  absl::StatusOr<int64_t> unclear, clear;
  control_->ChangePolicies({}, policy::AddPolicy{.id = PolicyId("next")},
                           [&](absl::StatusOr<int64_t> revision) { unclear = std::move(revision); });
  control_->ChangePolicies({}, policy::AddPolicy{.id = PolicyId("second"), .like = PolicyId("right")},
                           [&](absl::StatusOr<int64_t> revision) { clear = std::move(revision); });
  const StepOutcome outcome = StepToTheEnd();
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
  setup_.resumed.emplace();
  setup_.resumed->trained_as = {PolicyId("left"), PolicyId("right"), PolicyId("right")};
  const std::vector<size_t> trained_as = run::TrainedAs(setup_, *learner_->Policies());
  ASSERT_EQ(trained_as.size(), 3u);
  EXPECT_EQ(setup_.run.algorithms[trained_as[2]].name, "a2c");
}

}  // namespace
}  // namespace troupe::integration
