#include "lib/run/learner/local_sampler.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/rollout/testing/scripted_env.h"
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(60);
constexpr absl::Duration kWorkerTimeout = absl::Seconds(15);

/// What environments wait at in every step until it is opened.
class Gate {
 public:
  void Pass() {
    base::MutexLock lock(&mutex_);
    reached_ = true;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(&mutex_);
  }
  void Open() {
    base::MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  /// Whether somebody has come to it.
  bool AwaitReached() {
    base::MutexLock lock(&mutex_);
    return base::Await(changed_, &mutex_, base::Deadline::After(kDeadline),
                       [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return reached_; });
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool reached_ ABSL_GUARDED_BY(mutex_) = false;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

class GatedEnv final : public env::MultiAgentEnv {
 public:
  GatedEnv(std::unique_ptr<env::MultiAgentEnv> env, Gate* gate) : env_(std::move(env)), gate_(*gate) {}
  const env::EnvSpec& spec() const override { return env_->spec(); }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override { return env_->Reset(seed, out); }
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override {
    gate_.Pass();
    return env_->Step(actions, out);
  }

 private:
  const std::unique_ptr<env::MultiAgentEnv> env_;
  Gate& gate_;
};

rollout::RolloutConfig Gated(Gate* gate) {
  const rollout::Script script = {{.observe = {0, 1}}, {.observe = {0, 1}}, {.observe = {0, 1}, .terminate_all = true}};
  return rollout::ScriptedConfig({}, [script, gate]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
    return std::make_unique<GatedEnv>(rollout::MakeScriptedEnv({}, script), gate);
  });
}

/// A learner by the test's clock, and a sampler whose environments wait at the gate.
class LocalSamplerTest : public ::testing::Test {
 protected:
  LocalSamplerTest()
      : config_(Gated(&gate_)),
        trainer_(config_.policies),
        sampler_(std::make_shared<LocalSampler>(config_.policies.size())) {
    learner::LearnerConfig config;
    config.schema = rollout::ScriptedSchema(config_);
    config.options.num_envs = 2;
    config.options.train_batch_size = 8;
    config.options.num_workers = 0;
    config.options.worker_timeout = kWorkerTimeout;
    config.schema.num_envs = config.options.num_envs;
    learner::LearnerDeps deps;
    deps.trainer = &trainer_;
    deps.publisher = sampler_.get();
    deps.clock = &clock_;
    auto learner = learner::Learner::Create(std::move(config), deps);
    EXPECT_TRUE(learner.ok()) << learner.status();
    learner_ = *std::move(learner);
    EXPECT_TRUE(learner_->Start().ok());
    EXPECT_TRUE(sampler_->Join(config_, learner_.get()).ok());
    thread_ = std::thread([this] { sampler_->Run(); });
  }
  ~LocalSamplerTest() override {
    gate_.Open();
    Stop();
  }
  void Stop() {
    sampler_->Stop();
    if (thread_.joinable()) thread_.join();
  }

  /// One update, or why there is none.
  learner::StepOutcome StepToOutcome() {
    const base::Deadline deadline = base::Deadline::After(kDeadline);
    learner::StepOutcome outcome;
    while (outcome.kind == learner::StepOutcome::Kind::kWaiting && !deadline.passed()) {
      outcome = learner_->Step(absl::Milliseconds(20));
    }
    return outcome;
  }

  Gate gate_;
  base::FakeClock clock_;
  const rollout::RolloutConfig config_;
  learner::FakeTrainer trainer_;
  const std::shared_ptr<LocalSampler> sampler_;
  std::unique_ptr<learner::Learner> learner_;
  std::thread thread_;
};

TEST_F(LocalSamplerTest, ASlowEnvironmentDoesNotGetItGivenUp) {
  ASSERT_TRUE(gate_.AwaitReached());
  for (int second = 0; second < 2 * kWorkerTimeout / absl::Seconds(1); ++second) {
    clock_.Advance(absl::Seconds(1));
    sampler_->KeepAlive();
    learner_->Tick();
  }
  EXPECT_EQ(learner_->Status().workers.size(), 1u);
  gate_.Open();
  const learner::StepOutcome outcome = StepToOutcome();
  EXPECT_EQ(outcome.kind, learner::StepOutcome::Kind::kUpdated) << outcome.reason << outcome.status;
  EXPECT_EQ(trainer_.last_env_steps(), 8);
  Stop();
  EXPECT_TRUE(sampler_->status().ok()) << sampler_->status();
}

TEST_F(LocalSamplerTest, AGrantThatIsOutForTooLongIsGivenUpForTheNext) {
  ASSERT_TRUE(gate_.AwaitReached());
  for (int second = 0; second < 70; ++second) {
    clock_.Advance(absl::Seconds(1));
    sampler_->KeepAlive();
    learner_->Tick();
  }
  EXPECT_EQ(learner_->Status().progress.expired_grants, 1);
  gate_.Open();
  const learner::StepOutcome outcome = StepToOutcome();
  EXPECT_EQ(outcome.kind, learner::StepOutcome::Kind::kUpdated) << outcome.reason << outcome.status;
  EXPECT_EQ(trainer_.last_env_steps(), 8);
  EXPECT_GE(learner_->Status().fragments.stale, 1);
  Stop();
  EXPECT_TRUE(sampler_->status().ok()) << sampler_->status();
}

TEST_F(LocalSamplerTest, WithoutASignOfLifeItIsGivenUpAndTheRunDrains) {
  ASSERT_TRUE(gate_.AwaitReached());
  clock_.Advance(kWorkerTimeout + absl::Seconds(1));
  learner_->Tick();
  EXPECT_EQ(learner_->Status().workers.size(), 0u);
  sampler_->KeepAlive();
  EXPECT_EQ(learner_->Status().workers.size(), 0u) << "its ticket is void for ever";
  gate_.Open();
  const learner::StepOutcome outcome = StepToOutcome();
  EXPECT_EQ(outcome.kind, learner::StepOutcome::Kind::kDrained) << outcome.status;
  EXPECT_EQ(outcome.reason, "sampling failed");
  Stop();
  EXPECT_EQ(sampler_->status().code(), absl::StatusCode::kFailedPrecondition) << sampler_->status();
}

TEST_F(LocalSamplerTest, OneThatHasEndedGivesNoSignOfLife) {
  gate_.Open();
  Stop();
  ASSERT_EQ(learner_->Status().workers.size(), 1u);
  clock_.Advance(kWorkerTimeout - absl::Seconds(1));
  sampler_->KeepAlive();
  clock_.Advance(absl::Seconds(2));
  learner_->Tick();
  EXPECT_EQ(learner_->Status().workers.size(), 0u);
}

}  // namespace
}  // namespace troupe::run
