// Environments, collector, streams and learner together: rollout workers in threads, everything else as in a run.

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lib/config/resolved_run.h"
#include "lib/config/run_config.h"
#include "lib/envs/register_all.h"
#include "lib/policy/policy_spec.h"
#include "lib/rollout/rollout_worker.h"
#include "lib/rpc/control/monitor_client.h"
#include "lib/rpc/worker/worker_client.h"
#include "lib/run/rollout_setup.h"
#include "tests/integration/learner_fixture.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

constexpr char kConfig[] =
    "seed: 3\n"
    "env: {name: mpe/simple_spread}\n"
    "algorithm: {name: mappo, train_batch_size: 400, minibatch_size: 100}\n"
    "num_workers: 2\n"
    "num_envs_per_worker: 8\n";

/// A worker as services/worker runs it, but in two threads of the test.
class WorkerThread {
 public:
  WorkerThread(const config::ResolvedRun& run, const env::EnvRegistry& registry, const std::string& address,
               uint64_t incarnation) {
    rpc::WorkerClientOptions options;
    options.address = address;
    options.incarnation = incarnation;
    client_ = *rpc::WorkerClient::Create(std::move(options), &base::Clock::Real());
    io_ = std::thread([this] { client_->Run(); });
    TROUPE_CHECK(client_->AwaitWelcome(absl::Seconds(20)).ok());
    client_->SetPolicies(run.schema.policies, run.schema.Hash());
    auto collector = rollout::Collector::Create(*run::MakeRolloutConfig(run, registry));
    TROUPE_CHECK(collector.ok());
    worker_ = std::make_unique<rollout::RolloutWorker>(*std::move(collector), *client_, *client_, *client_);
    stepping_ = std::thread([this] { status_ = worker_->Run(); });
  }
  ~WorkerThread() { Finish().IgnoreError(); }

  /// Waits for the learner's drain, hands in, leaves.
  absl::Status Finish() {
    if (stepping_.joinable()) {
      stepping_.join();
      drained_ = client_->Drain(absl::Seconds(20));
      client_->Close();
      io_.join();
    }
    return status_.ok() ? drained_ : status_;
  }
  rpc::AckCounters acks() const { return client_->acks(); }

 private:
  std::unique_ptr<rpc::WorkerClient> client_;
  std::unique_ptr<rollout::RolloutWorker> worker_;
  absl::Status status_, drained_;
  std::thread io_, stepping_;
};

class WholePathTest : public testing::Test {
 protected:
  WholePathTest() { envs::RegisterAllEnvs(registry_); }

  config::ResolvedRun Resolve(const std::vector<std::string>& overrides) {
    auto config = config::RunConfig::FromYaml(kConfig, "test", overrides);
    TROUPE_CHECK(config.ok());
    auto run = config::ResolveRun(*config, registry_);
    TROUPE_CHECK(run.ok());
    return *std::move(run);
  }
  /// Trains `updates` updates with `num_workers` workers; the fake trainer's parameters, a hash of all that was trained
  /// on.
  std::vector<float> Train(const config::ResolvedRun& run, int num_workers, int64_t updates) {
    learner::LearnerConfig config;
    config.options = run.learner;
    config.options.num_workers = num_workers;
    config.schema = run.schema;
    config.info_columns = run.env_spec.info_columns;
    ServedLearner learner(
        std::move(config),
        SocketFor(absl::StrCat(testing::UnitTest::GetInstance()->current_test_info()->name(), num_workers)));
    lags_.clear();
    learner.trainer().OnUpdate([&](const learner::UpdateContext& context) {
      if (context.iteration > 0) lags_.push_back(learner.learner().Status().progress.policy_lag);
      if (during_update_ != nullptr) during_update_(learner.learner());
    });
    TROUPE_CHECK(learner.learner().Start().ok());
    std::vector<std::unique_ptr<WorkerThread>> workers;
    for (int i = 0; i < num_workers; ++i) {
      workers.push_back(
          std::make_unique<WorkerThread>(run, registry_, learner.address(), static_cast<uint64_t>(i) + 1));
    }
    EXPECT_TRUE(learner.StepTo(updates));
    lags_.push_back(learner.learner().Status().progress.policy_lag);
    const std::vector<float> parameters = learner.trainer().ExportState(policy::PolicySlot(0))->parameters();

    // As people see it from outside.
    const auto monitor = rpc::MonitorClient::Create(learner.address(), {});
    const auto reply = (*monitor)->Status(absl::Seconds(10));
    EXPECT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->learner.progress.updates, updates);
    // Complete episodes may go beyond.
    EXPECT_GE(reply->learner.progress.env_steps, updates * run.learner.train_batch_size);
    if (!run.learner.complete_episodes) {
      EXPECT_EQ(reply->learner.progress.env_steps, updates * run.learner.train_batch_size);
    }
    EXPECT_EQ(reply->workers.size(), static_cast<size_t>(num_workers));
    int64_t envs = 0;
    for (const rpc::ConnectedWorker& worker : reply->workers) envs += worker.worker.lanes;
    EXPECT_EQ(envs, run.learner.num_envs);

    learner.learner().RequestDrain("test");
    int64_t accepted = 0;
    for (const auto& worker : workers) {
      EXPECT_TRUE(worker->Finish().ok()) << worker->Finish();
      EXPECT_EQ(worker->acks().stale + worker->acks().duplicate + worker->acks().invalid, 0)
          << worker->acks().last_reason;
      accepted += worker->acks().accepted;
    }
    const learner::LearnerStatus status = learner.learner().Status();
    EXPECT_EQ(status.fragments.accepted, accepted);
    EXPECT_TRUE(learner::CheckConservation(status.progress.rows).ok());
    EXPECT_EQ(status.progress.rows.trained, status.progress.agent_steps);
    EXPECT_EQ(status.progress.rows.dropped, 0);
    EXPECT_GT(status.progress.episodes, 0);
    return parameters;
  }

  env::EnvRegistry registry_;
  std::function<void(learner::Learner&)> during_update_;  ///< called while the trainer is at work
  std::vector<double> lags_;                              ///< of each update of the last Train: the mean over its rows
};

TEST_F(WholePathTest, TrainsStrictlyOnPolicyAndTheNumberOfWorkersChangesNothing) {
  const config::ResolvedRun run = Resolve({});
  // While an update goes on there are the samples that it trains on, three agents' of 400 steps, and no others.
  during_update_ = [](learner::Learner& learner) { EXPECT_EQ(learner.Status().progress.rows.queued, 3 * 400); };
  const std::vector<float> one = Train(run, 1, 6);
  EXPECT_THAT(lags_, testing::AllOf(testing::SizeIs(6), testing::Each(0.0)));
  const std::vector<float> two = Train(run, 2, 6);
  // Same environments, episodes and draws, in the same order: the batches are equal to the last bit.
  EXPECT_EQ(one, two);
  const std::vector<float> other = Train(Resolve({"seed=4"}), 2, 6);
  EXPECT_NE(one, other);
}

TEST_F(WholePathTest, SamplingOverlapsTheUpdateAtLagOne) {
  // Each update ends only when all samples of the next one are there beside its own: they are made meanwhile, or never.
  int overlapped = 0;
  during_update_ = [&](learner::Learner& learner) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (learner.Status().progress.rows.queued < 2 * 3 * 400 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    overlapped += static_cast<int>(learner.Status().progress.rows.queued == 2 * 3 * 400);
  };
  Train(Resolve({"algorithm.max_policy_lag=1"}), 2, 6);
  EXPECT_EQ(overlapped, 6);
  EXPECT_THAT(lags_, testing::ElementsAre(0, 1, 1, 1, 1, 1)) << "the first batch is of the weights that it trains";
}

TEST_F(WholePathTest, SamplingRunsFreelyUpToTwoBatchesAhead) {
  int ahead = 0;  // updates during which two more batches were sampled
  during_update_ = [&](learner::Learner& learner) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (learner.Status().progress.rows.queued < 3 * 3 * 400 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    ahead += static_cast<int>(learner.Status().progress.rows.queued == 3 * 3 * 400);
  };
  Train(Resolve({"algorithm.max_policy_lag=100"}), 2, 6);
  EXPECT_EQ(ahead, 6);
  EXPECT_THAT(lags_, testing::Each(testing::Le(3)));
  EXPECT_GT(lags_.back(), 0);
}

TEST_F(WholePathTest, CompleteEpisodes) { Train(Resolve({"batch_mode=complete_episodes"}), 2, 4); }

// The fake trainer has no moments of observations.
TEST_F(WholePathTest, ContinuousActions) {
  Train(Resolve({"env.args={continuous_actions: true}", "algorithm.normalize_observations=false"}), 2, 4);
}

TEST_F(WholePathTest, BytesMasksAndMixedActions) {
  const config::ResolvedRun run = Resolve({"env.name=testing/signals", "env.args={hybrid: true}"});
  EXPECT_EQ(run.policies[0].observation_space.flat_dtype(), tensor::DType::kUint8);
  EXPECT_EQ(run.policies[0].mask_size(), 3 + 4);
  EXPECT_EQ(Train(run, 1, 4), Train(run, 2, 4));
}

TEST_F(WholePathTest, GroupsStacksOfFramesAndStatesOfDicts) {
  const config::ResolvedRun run =
      Resolve({"env.name=testing/signals", "env.args={dict: true}", "env.groups={both: [agent_1, agent_0]}",
               "env.frame_stack=2", "env.max_episode_steps=5", "algorithm.use_global_state=true"});
  EXPECT_EQ(run.agent_ids(), std::vector<std::string>{"both"});
  EXPECT_EQ(run.policies[0].observation_size(), 2 * 2 * 24);
  EXPECT_EQ(run.policies[0].critic_state_size(), 4);
  Train(run, 2, 4);
}

}  // namespace
}  // namespace troupe::integration
