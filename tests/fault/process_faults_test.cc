// Real processes that die: workers and learners killed in mid-run, and what must hold afterwards.

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/learner/accounting.h"
#include "lib/rpc/control/monitor_client.h"
#include "tests/fault/process.h"
#include <gtest/gtest.h>

namespace troupe::fault {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int64_t kBatch = 400;

class ProcessFaultsTest : public testing::Test {
 protected:
  ProcessFaultsTest() {
    directory_ =
        std::filesystem::path(testing::TempDir()) /
        absl::StrCat("troupe-fault-", getpid(), "-", testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
    address_ = absl::StrCat("unix-abstract:troupe-fault-", getpid(), "-",
                            testing::UnitTest::GetInstance()->current_test_info()->name());
    WriteConfig("{worker_timeout_s: 3}");
    monitor_ = *rpc::MonitorClient::Create(address_, {});
  }
  ~ProcessFaultsTest() override {
    workers_.clear();
    learner_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  void WriteConfig(const std::string& learner) {
    std::ofstream(directory_ / "config.yaml") << "seed: 5\n"
                                                 "env: {name: mpe/simple_spread}\n"
                                                 "algorithm: {name: mappo, train_batch_size: "
                                              << kBatch
                                              << ", minibatch_size: 100}\n"
                                                 "num_workers: 2\n"
                                                 "num_envs_per_worker: 8\n"
                                                 "learner: "
                                              << learner << "\nstop: {env_steps: 1000000000}\n";
  }
  void StartLearner() {
    learner_ = std::make_unique<Process>(
        std::vector<std::string>{TROUPE_FAULT_LEARNER, directory_ / "config.yaml", directory_ / "run", address_});
  }
  Process& StartWorker() {
    return *workers_.emplace_back(std::make_unique<Process>(std::vector<std::string>{TROUPE_FAULT_WORKER, address_}));
  }
  rpc::RunStatus Status() {
    const auto reply = monitor_->Status(absl::Seconds(5));
    return reply.ok() ? *reply : rpc::RunStatus();
  }
  /// The first status for which `condition` holds.
  ::testing::AssertionResult Await(const std::function<bool(const rpc::RunStatus&)>& condition, rpc::RunStatus* reply) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      *reply = Status();
      if (condition(*reply)) return ::testing::AssertionSuccess();
      if (!learner_->running()) return ::testing::AssertionFailure() << "the learner has ended";
      absl::SleepFor(absl::Milliseconds(10));
    }
    return ::testing::AssertionFailure() << "not within " << kPatience << "; at last " << reply->learner.state
                                         << " after " << reply->learner.progress.updates << " updates with "
                                         << reply->workers.size() << " workers";
  }
  ::testing::AssertionResult AwaitUpdates(int64_t updates, rpc::RunStatus* reply) {
    return Await([updates](const rpc::RunStatus& now) { return now.learner.progress.updates >= updates; }, reply);
  }
  /// Every row and every fragment has exactly one fate, and nothing was trained on twice.
  static void ExpectCountersAddUp(const rpc::RunStatus& status) {
    const learner::ProgressRecord& progress = status.learner.progress;
    EXPECT_EQ(learner::CheckConservation(progress.rows), absl::OkStatus());
    const learner::FragmentCounters& fragments = status.learner.fragments;
    EXPECT_EQ(fragments.received, fragments.accepted + fragments.duplicate + fragments.stale + fragments.invalid);
    EXPECT_EQ(fragments.unknown, 0);
    EXPECT_EQ(progress.rows.invalid, 0);
    EXPECT_EQ(progress.env_steps, progress.updates * kBatch) << "an update with more or fewer steps than its batch";
    EXPECT_EQ(progress.rows.trained, progress.agent_steps);
  }
  static std::set<uint64_t> WorkerIds(const rpc::RunStatus& status) {
    std::set<uint64_t> ids;
    for (const rpc::ConnectedWorker& worker : status.workers) ids.insert(worker.worker.id.value());
    return ids;
  }

  std::filesystem::path directory_;
  std::string address_;
  std::unique_ptr<rpc::MonitorClient> monitor_;
  std::unique_ptr<Process> learner_;
  std::vector<std::unique_ptr<Process>> workers_;
};

TEST_F(ProcessFaultsTest, AKilledWorkerIsReplacedAndCostsOnlyWhatWasNotAcknowledged) {
  StartLearner();
  StartWorker();
  StartWorker();
  rpc::RunStatus before, reply;
  ASSERT_TRUE(AwaitUpdates(3, &before));
  std::set<uint64_t> known = WorkerIds(before);
  ASSERT_EQ(known.size(), 2u);
  for (int round = 0; round < 5; ++round) {
    workers_[0]->Signal(SIGKILL);
    ASSERT_EQ(workers_[0]->AwaitExit(kPatience), 128 + SIGKILL);
    workers_.erase(workers_.begin());
    // The one that is left takes over, before anybody replaces the dead.
    const int64_t updates = Status().learner.progress.updates;
    ASSERT_TRUE(
        Await([&](const auto& now) { return now.workers.size() == 1 && now.learner.progress.updates >= updates + 2; },
              &reply));
    StartWorker();
    ASSERT_TRUE(
        Await([&](const auto& now) { return now.workers.size() == 2 && now.learner.progress.updates >= updates + 5; },
              &reply));
    ExpectCountersAddUp(reply);
    EXPECT_EQ(reply.learner.progress.rows.dropped, 0) << "an acknowledged row was lost";
    const size_t known_before = known.size();
    for (const uint64_t id : WorkerIds(reply)) known.insert(id);
    EXPECT_EQ(known.size(), known_before + 1) << "the replacement is a worker of its own";
  }
}

TEST_F(ProcessFaultsTest, ALearnerThatIsStartedAgainResumesAndTheWorkersRejoin) {
  StartLearner();
  Process& first = StartWorker();
  Process& second = StartWorker();
  int64_t at_least = 12;
  std::set<uint64_t> ids;
  for (uint64_t epoch = 1; epoch <= 4; ++epoch) {
    rpc::RunStatus reply;
    ASSERT_TRUE(AwaitUpdates(at_least, &reply));
    EXPECT_EQ(reply.learner.learner_epoch, epoch);
    if (epoch == 1) ids = WorkerIds(reply);
    EXPECT_EQ(ids.size(), 2u);
    EXPECT_EQ(WorkerIds(reply), ids) << "workers keep their ids";
    ExpectCountersAddUp(reply);
    const int64_t before_kill = Status().learner.progress.updates;
    learner_->Signal(SIGKILL);
    ASSERT_EQ(learner_->AwaitExit(kPatience), 128 + SIGKILL);
    StartLearner();
    // Back on its feet with both workers: from the last checkpoint, at most five updates before the kill (and the one
    // in progress).
    rpc::RunStatus restarted;
    ASSERT_TRUE(
        Await([&](const auto& now) { return now.learner.learner_epoch == epoch + 1 && now.workers.size() == 2; },
              &restarted));
    EXPECT_GE(restarted.learner.progress.updates, before_kill - 6);
    at_least = before_kill + 12;
    EXPECT_TRUE(first.running());
    EXPECT_TRUE(second.running());
  }
}

TEST_F(ProcessFaultsTest, LearnerAndWorkersKilledTogether) {
  StartLearner();
  StartWorker();
  StartWorker();
  rpc::RunStatus reply;
  ASSERT_TRUE(AwaitUpdates(12, &reply));
  const int64_t before_kill = Status().learner.progress.updates;
  learner_->Signal(SIGKILL);
  for (const auto& worker : workers_) worker->Signal(SIGKILL);
  learner_->AwaitExit(kPatience);
  workers_.clear();
  StartLearner();
  StartWorker();
  StartWorker();
  ASSERT_TRUE(AwaitUpdates(before_kill + 5, &reply));
  EXPECT_EQ(reply.learner.learner_epoch, 2u);
  ExpectCountersAddUp(reply);
}

TEST_F(ProcessFaultsTest, AWorkerThatStallsIsReplacedAndComesBack) {
  StartLearner();
  StartWorker();
  StartWorker();
  rpc::RunStatus reply;
  ASSERT_TRUE(AwaitUpdates(3, &reply));
  const std::set<uint64_t> ids = WorkerIds(reply);
  workers_[0]->Signal(SIGSTOP);
  const int64_t updates = Status().learner.progress.updates;
  // Silent for learner.worker_timeout_s; then the other samples everything.
  ASSERT_TRUE(Await(
      [&](const auto& now) { return now.workers.size() == 1 && now.learner.progress.updates >= updates + 3; }, &reply));
  workers_[0]->Signal(SIGCONT);
  ASSERT_TRUE(Await([&](const auto& now) { return now.workers.size() == 2; }, &reply));
  ASSERT_TRUE(AwaitUpdates(reply.learner.progress.updates + 5, &reply));
  EXPECT_EQ(WorkerIds(reply), ids);
  ExpectCountersAddUp(reply);
}

TEST_F(ProcessFaultsTest, SigtermOfAWorkerHandsInAndLeaves) {
  StartLearner();
  StartWorker();
  StartWorker();
  rpc::RunStatus reply;
  ASSERT_TRUE(AwaitUpdates(3, &reply));
  workers_[0]->Signal(SIGTERM);
  EXPECT_EQ(workers_[0]->AwaitExit(absl::Seconds(20)), 0);
  ASSERT_TRUE(AwaitUpdates(Status().learner.progress.updates + 3, &reply));
  EXPECT_EQ(reply.workers.size(), 1u);
  ExpectCountersAddUp(reply);
  EXPECT_EQ(reply.learner.progress.rows.dropped, 0);
}

TEST_F(ProcessFaultsTest, SigtermOfTheLearnerDrainsEverybody) {
  StartLearner();
  StartWorker();
  StartWorker();
  rpc::RunStatus reply;
  ASSERT_TRUE(AwaitUpdates(7, &reply));
  learner_->Signal(SIGTERM);
  EXPECT_EQ(learner_->AwaitExit(absl::Seconds(20)), 0);
  for (const auto& worker : workers_) EXPECT_EQ(worker->AwaitExit(absl::Seconds(20)), 0);
  // What was trained is on the disk: a resumed learner has at least that much.
  StartLearner();
  StartWorker();
  StartWorker();
  rpc::RunStatus resumed;
  ASSERT_TRUE(Await([](const auto& now) { return now.learner.learner_epoch == 2; }, &resumed));
  EXPECT_GE(resumed.learner.progress.updates, reply.learner.progress.updates);
  ASSERT_TRUE(AwaitUpdates(reply.learner.progress.updates + 20, &resumed));
  ExpectCountersAddUp(resumed);
}

TEST_F(ProcessFaultsTest, ASignalEndsWorkersWhoseLearnerIsGone) {
  StartLearner();
  StartWorker();
  StartWorker();
  rpc::RunStatus reply;
  ASSERT_TRUE(AwaitUpdates(3, &reply));
  learner_->Signal(SIGKILL);
  ASSERT_EQ(learner_->AwaitExit(kPatience), 128 + SIGKILL);
  workers_[0]->Signal(SIGTERM);
  workers_[1]->Signal(SIGINT);
  // There is nobody to hand in to: they do not wait for the acknowledgements of what they hold (10 s).
  EXPECT_EQ(workers_[0]->AwaitExit(absl::Seconds(8)), 0);
  EXPECT_EQ(workers_[1]->AwaitExit(absl::Seconds(8)), 130);
}

TEST_F(ProcessFaultsTest, ThreeHundredWorkersThatDeliverNothingDoNotStopTheOthers) {
  WriteConfig("{grant_timeout_s: 1}");
  StartLearner();
  StartWorker();
  StartWorker();
  rpc::RunStatus reply;
  ASSERT_TRUE(AwaitUpdates(3, &reply));
  const std::set<uint64_t> honest = WorkerIds(reply);
  Process& silent = *workers_.emplace_back(
      std::make_unique<Process>(std::vector<std::string>{TROUPE_SILENT_WORKERS, address_, "300"}));
  ASSERT_TRUE(Await(
      [](const auto& now) { return now.workers.size() == 302 && now.learner.progress.expired_grants > 0; }, &reply));
  ASSERT_TRUE(AwaitUpdates(reply.learner.progress.updates + 200, &reply));
  ExpectCountersAddUp(reply);
  int64_t expired = 0;
  for (const rpc::ConnectedWorker& connected : reply.workers) {
    expired += connected.worker.expired_grants;
    if (honest.count(connected.worker.id.value()) == 0) {
      EXPECT_EQ(connected.worker.accepted_rows, 0);
    }
  }
  EXPECT_EQ(reply.learner.progress.expired_grants, expired);
  silent.Signal(SIGKILL);
  ASSERT_TRUE(Await([](const auto& now) { return now.workers.size() == 2; }, &reply));
  ASSERT_TRUE(AwaitUpdates(reply.learner.progress.updates + 20, &reply));
  ExpectCountersAddUp(reply);
}

TEST_F(ProcessFaultsTest, AWorkerWithoutALearnerSaysSo) {
  Process& worker = StartWorker();
  EXPECT_EQ(worker.AwaitExit(absl::Seconds(30)), 1);
}

}  // namespace
}  // namespace troupe::fault
