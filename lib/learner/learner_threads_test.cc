// The same learner under real threads: workers, a watcher that ticks, and the update thread. For TSan.

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "lib/learner/learner.h"
#include "lib/learner/testing/fake_trainer.h"
#include "lib/learner/testing/fake_worker.h"
#include <gtest/gtest.h>

namespace troupe::learner {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(60);

/// Samples until the run is over; every `leave_after` grants it vanishes in the middle of one and joins as a new
/// worker.
void RunWorker(Learner& learner, const FakePublisher& publisher, const sample::BatchSchema& schema, int leave_after) {
  int grants = 0;
  while (true) {
    auto port = std::make_shared<FakeWorkerPort>();
    const auto ticket = learner.Join({}, port);
    if (!ticket.ok()) return;  // the run has ended
    sample::FakeRolloutOptions options;
    options.min_episode_steps = 3;
    options.max_episode_steps = 9;
    options.max_ticks_per_fragment = 4;
    sample::FakeRollout rollout(schema, options);
    uint64_t sequence = 1;
    bool here = true;
    while (here) {
      const auto grant = port->AwaitGrant(kDeadline);
      if (!grant.has_value()) return;
      const bool dies = ++grants % leave_after == 0;
      for (auto& fragment : rollout.Play(*grant, publisher.version())) {
        EXPECT_TRUE(learner.Submit(*ticket, sequence++, fragment).ok());
        if (dies) break;
      }
      if (dies) {
        learner.Leave(*ticket);
        here = false;
      }
    }
  }
}

void RunLearner(int num_workers, int64_t lag) {
  LearnerConfig config;
  config.schema = sample::SimpleSchema(2, 4);
  config.options.num_envs = 8;
  config.options.train_batch_size = 80;
  config.options.max_policy_lag = lag;
  config.options.num_workers = num_workers;
  config.stop.updates = 50;
  FakeTrainer trainer(config.schema.policies);
  FakePublisher publisher;
  LearnerDeps deps;
  deps.trainer = &trainer;
  deps.publisher = &publisher;
  auto made = Learner::Create(config, deps);
  ASSERT_TRUE(made.ok()) << made.status();
  Learner& learner = **made;
  ASSERT_TRUE(learner.Start().ok());

  std::vector<std::thread> threads;
  for (int i = 0; i < num_workers; ++i) {
    threads.emplace_back([&, i] { RunWorker(learner, publisher, config.schema, 7 + i); });
  }
  std::atomic<bool> over = false;  // relaxed: it orders nothing, joining the thread does
  std::thread watcher([&] {
    while (!over.load(std::memory_order_relaxed)) {
      learner.Tick();
      EXPECT_TRUE(CheckConservation(learner.Status().progress.rows).ok());
    }
  });
  StepOutcome outcome;
  do {
    outcome = learner.Step(kDeadline);
    EXPECT_TRUE(learner.SnapshotState().ok());
  } while (outcome.kind == StepOutcome::Kind::kUpdated);
  EXPECT_EQ(outcome.kind, StepOutcome::Kind::kStopped) << outcome.reason << outcome.status;
  learner.RequestDrain("the run has ended");
  over.store(true, std::memory_order_relaxed);
  watcher.join();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trainer.updates(), 50);
  EXPECT_EQ(learner.Status().progress.env_steps, 50 * 80);
  EXPECT_TRUE(CheckConservation(learner.Status().progress.rows).ok());
}

TEST(LearnerThreadsTest, OneWorker) { RunLearner(1, 0); }
TEST(LearnerThreadsTest, FourWorkersStrictlyOnPolicy) { RunLearner(4, 0); }
TEST(LearnerThreadsTest, FourWorkersOverlapped) { RunLearner(4, 1); }

}  // namespace
}  // namespace troupe::learner
