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
#include "lib/rpc/monitor_client.h"
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
  v1::StatusReply Status() {
    const auto reply = monitor_->Status(absl::Seconds(5));
    return reply.ok() ? *reply : v1::StatusReply();
  }
  /// The first status for which `condition` holds.
  ::testing::AssertionResult Await(const std::function<bool(const v1::StatusReply&)>& condition,
                                   v1::StatusReply* reply) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      *reply = Status();
      if (condition(*reply)) return ::testing::AssertionSuccess();
      if (!learner_->running()) return ::testing::AssertionFailure() << "the learner has ended";
      absl::SleepFor(absl::Milliseconds(10));
    }
    return ::testing::AssertionFailure() << "not within " << kPatience << "; last status:\n" << reply->DebugString();
  }
  ::testing::AssertionResult AwaitUpdates(int64_t updates, v1::StatusReply* reply) {
    return Await([updates](const v1::StatusReply& now) { return now.updates() >= updates; }, reply);
  }
  /// Every row and every fragment has exactly one fate, and nothing was trained on twice.
  static void ExpectCountersAddUp(const v1::StatusReply& reply) {
    const v1::RowCounters& rows = reply.rows();
    EXPECT_EQ(rows.received(), rows.accepted() + rows.duplicate() + rows.stale() + rows.invalid())
        << rows.DebugString();
    EXPECT_EQ(rows.accepted(), rows.trained() + rows.queued() + rows.dropped() + rows.rolled_back())
        << rows.DebugString();
    const v1::FragmentCounters& fragments = reply.fragments();
    EXPECT_EQ(fragments.received(),
              fragments.accepted() + fragments.duplicate() + fragments.stale() + fragments.invalid());
    EXPECT_EQ(fragments.unknown(), 0);
    EXPECT_EQ(rows.invalid(), 0);
    EXPECT_EQ(reply.env_steps(), reply.updates() * kBatch) << "an update with more or fewer steps than its batch";
    EXPECT_EQ(rows.trained(), reply.agent_steps());
  }
  static std::set<uint64_t> WorkerIds(const v1::StatusReply& reply) {
    std::set<uint64_t> ids;
    for (const v1::WorkerStatus& worker : reply.workers()) ids.insert(worker.worker_id());
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
  v1::StatusReply before, reply;
  ASSERT_TRUE(AwaitUpdates(3, &before));
  std::set<uint64_t> known = WorkerIds(before);
  ASSERT_EQ(known.size(), 2u);
  for (int round = 0; round < 5; ++round) {
    workers_[0]->Signal(SIGKILL);
    ASSERT_EQ(workers_[0]->AwaitExit(kPatience), 128 + SIGKILL);
    workers_.erase(workers_.begin());
    // The one that is left takes over, before anybody replaces the dead.
    const int64_t updates = Status().updates();
    ASSERT_TRUE(
        Await([&](const auto& now) { return now.workers_size() == 1 && now.updates() >= updates + 2; }, &reply));
    StartWorker();
    ASSERT_TRUE(
        Await([&](const auto& now) { return now.workers_size() == 2 && now.updates() >= updates + 5; }, &reply));
    ExpectCountersAddUp(reply);
    EXPECT_EQ(reply.rows().dropped(), 0) << "an acknowledged row was lost";
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
    v1::StatusReply reply;
    ASSERT_TRUE(AwaitUpdates(at_least, &reply));
    EXPECT_EQ(reply.learner_epoch(), epoch);
    if (epoch == 1) ids = WorkerIds(reply);
    EXPECT_EQ(ids.size(), 2u);
    EXPECT_EQ(WorkerIds(reply), ids) << "workers keep their ids";
    ExpectCountersAddUp(reply);
    const int64_t before_kill = Status().updates();
    learner_->Signal(SIGKILL);
    ASSERT_EQ(learner_->AwaitExit(kPatience), 128 + SIGKILL);
    StartLearner();
    // Back on its feet with both workers: from the last checkpoint, at most five updates before the kill (and the one
    // in progress).
    v1::StatusReply restarted;
    ASSERT_TRUE(Await([&](const auto& now) { return now.learner_epoch() == epoch + 1 && now.workers_size() == 2; },
                      &restarted));
    EXPECT_GE(restarted.updates(), before_kill - 6);
    at_least = before_kill + 12;
    EXPECT_TRUE(first.running());
    EXPECT_TRUE(second.running());
  }
}

TEST_F(ProcessFaultsTest, LearnerAndWorkersKilledTogether) {
  StartLearner();
  StartWorker();
  StartWorker();
  v1::StatusReply reply;
  ASSERT_TRUE(AwaitUpdates(12, &reply));
  const int64_t before_kill = Status().updates();
  learner_->Signal(SIGKILL);
  for (const auto& worker : workers_) worker->Signal(SIGKILL);
  learner_->AwaitExit(kPatience);
  workers_.clear();
  StartLearner();
  StartWorker();
  StartWorker();
  ASSERT_TRUE(AwaitUpdates(before_kill + 5, &reply));
  EXPECT_EQ(reply.learner_epoch(), 2u);
  ExpectCountersAddUp(reply);
}

TEST_F(ProcessFaultsTest, AWorkerThatStallsIsReplacedAndComesBack) {
  StartLearner();
  StartWorker();
  StartWorker();
  v1::StatusReply reply;
  ASSERT_TRUE(AwaitUpdates(3, &reply));
  const std::set<uint64_t> ids = WorkerIds(reply);
  workers_[0]->Signal(SIGSTOP);
  const int64_t updates = Status().updates();
  // Silent for learner.worker_timeout_s; then the other samples everything.
  ASSERT_TRUE(Await([&](const auto& now) { return now.workers_size() == 1 && now.updates() >= updates + 3; }, &reply));
  workers_[0]->Signal(SIGCONT);
  ASSERT_TRUE(Await([&](const auto& now) { return now.workers_size() == 2; }, &reply));
  ASSERT_TRUE(AwaitUpdates(reply.updates() + 5, &reply));
  EXPECT_EQ(WorkerIds(reply), ids);
  ExpectCountersAddUp(reply);
}

TEST_F(ProcessFaultsTest, SigtermOfAWorkerHandsInAndLeaves) {
  StartLearner();
  StartWorker();
  StartWorker();
  v1::StatusReply reply;
  ASSERT_TRUE(AwaitUpdates(3, &reply));
  workers_[0]->Signal(SIGTERM);
  EXPECT_EQ(workers_[0]->AwaitExit(absl::Seconds(20)), 0);
  ASSERT_TRUE(AwaitUpdates(Status().updates() + 3, &reply));
  EXPECT_EQ(reply.workers_size(), 1);
  ExpectCountersAddUp(reply);
  EXPECT_EQ(reply.rows().dropped(), 0);
}

TEST_F(ProcessFaultsTest, SigtermOfTheLearnerDrainsEverybody) {
  StartLearner();
  StartWorker();
  StartWorker();
  v1::StatusReply reply;
  ASSERT_TRUE(AwaitUpdates(7, &reply));
  learner_->Signal(SIGTERM);
  EXPECT_EQ(learner_->AwaitExit(absl::Seconds(20)), 0);
  for (const auto& worker : workers_) EXPECT_EQ(worker->AwaitExit(absl::Seconds(20)), 0);
  // What was trained is on the disk: a resumed learner has at least that much.
  StartLearner();
  StartWorker();
  StartWorker();
  v1::StatusReply resumed;
  ASSERT_TRUE(Await([](const auto& now) { return now.learner_epoch() == 2; }, &resumed));
  EXPECT_GE(resumed.updates(), reply.updates());
  ASSERT_TRUE(AwaitUpdates(reply.updates() + 20, &resumed));
  ExpectCountersAddUp(resumed);
}

TEST_F(ProcessFaultsTest, ASignalEndsWorkersWhoseLearnerIsGone) {
  StartLearner();
  StartWorker();
  StartWorker();
  v1::StatusReply reply;
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
  v1::StatusReply reply;
  ASSERT_TRUE(AwaitUpdates(3, &reply));
  const std::set<uint64_t> honest = WorkerIds(reply);
  Process& silent = *workers_.emplace_back(
      std::make_unique<Process>(std::vector<std::string>{TROUPE_SILENT_WORKERS, address_, "300"}));
  ASSERT_TRUE(Await([](const auto& now) { return now.workers_size() == 302 && now.expired_grants() > 0; }, &reply));
  ASSERT_TRUE(AwaitUpdates(reply.updates() + 200, &reply));
  ExpectCountersAddUp(reply);
  int64_t expired = 0;
  for (const v1::WorkerStatus& worker : reply.workers()) {
    expired += worker.expired_grants();
    if (honest.count(worker.worker_id()) == 0) {
      EXPECT_EQ(worker.accepted_rows(), 0);
    }
  }
  EXPECT_EQ(reply.expired_grants(), expired);
  silent.Signal(SIGKILL);
  ASSERT_TRUE(Await([](const auto& now) { return now.workers_size() == 2; }, &reply));
  ASSERT_TRUE(AwaitUpdates(reply.updates() + 20, &reply));
  ExpectCountersAddUp(reply);
}

TEST_F(ProcessFaultsTest, AWorkerWithoutALearnerSaysSo) {
  Process& worker = StartWorker();
  EXPECT_EQ(worker.AwaitExit(absl::Seconds(30)), 1);
}

}  // namespace
}  // namespace troupe::fault
