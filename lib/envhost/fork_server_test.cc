// Processes that are forked from one that has imported what they need.

#include "lib/envhost/fork_server.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/clock.h"
#include "lib/envhost/host_pool.h"
#include "lib/envhost/host_process.h"
#include "lib/envhost/testing/player.h"
#include "lib/envhost/testing/processes.h"

namespace troupe::envhost {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The process that the last line "left PID" of a log names.
pid_t LeftBehind(const std::string& log) {
  pid_t pid = 0;
  for (const std::string& line : Lines(log)) {
    if (absl::StartsWith(line, "left ")) pid = std::stoi(line.substr(5));
  }
  return pid;
}

class ForkServerTest : public ::testing::Test {
 protected:
  static ProcessOrder Order(const std::string& name, nlohmann::json args = nlohmann::json::object()) {
    return *ProcessOrder::Make(Options(1),
                               {{"name", name}, {"args", std::move(args)}, {"global_state", true}, {"draws", false}});
  }
  /// Starts one for an environment of `module` and waits until it knows what it is.
  ForkServer::State Start(const std::string& module) {
    order_ = Order(module + ":counter");
    server_ = *ForkServer::Start(order_.interpreter, order_.package_folder, order_.start_message, "fork server");
    EXPECT_TRUE(Await([this] { return server_->Look() != ForkServer::State::kStarting; }));
    return server_->Look();
  }
  std::shared_ptr<HostProcess> Process() { return *HostProcess::Start(order_, "process", server_.get()); }

  ProcessOrder order_;
  std::shared_ptr<ForkServer> server_;
};

TEST_F(ForkServerTest, AForkIsAProcessLikeAnyOther) {
  ASSERT_EQ(Start("host_test_envs"), ForkServer::State::kReady);
  const std::shared_ptr<HostProcess> forked = Process(), another = Process();
  const std::shared_ptr<HostProcess> spawned = *HostProcess::Start(order_, "process");
  EXPECT_EQ(StateOf(forked->pid()).parent, server_->pid());
  EXPECT_EQ(StateOf(another->pid()).parent, server_->pid());
  EXPECT_EQ(StateOf(spawned->pid()).parent, getpid());
  const absl::StatusOr<std::string> description = forked->AwaitDescription();
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(*description, *spawned->AwaitDescription());
  EXPECT_EQ(*description, *another->AwaitDescription());
  EXPECT_EQ(getpgid(forked->pid()), forked->pid()) << "it is not the first of a group of its own";
  Dismiss({forked, another, spawned}, absl::Seconds(60));
  EXPECT_EQ(StateOf(forked->pid()).state, '-') << "it is left as a zombie";
}

TEST_F(ForkServerTest, AModuleThatStartsThreadsIsRefused) {
  EXPECT_EQ(Start("host_test_threads"), ForkServer::State::kRefused);
  EXPECT_FALSE(Lives(server_->pid()));
  const std::shared_ptr<HostProcess> process = Process();
  EXPECT_EQ(StateOf(process->pid()).parent, getpid());
  EXPECT_TRUE(process->AwaitDescription().ok());
}

TEST_F(ForkServerTest, AModuleThatCannotBeImportedIsRefused) {
  EXPECT_EQ(Start("host_test_nothing"), ForkServer::State::kRefused);
  EXPECT_THAT(std::string(Process()->AwaitDescription().status().message()), HasSubstr("no module host_test_nothing"));
}

TEST_F(ForkServerTest, WithoutItsServerAProcessGoesOnAndItsEndIsNoticed) {
  ASSERT_EQ(Start("host_test_envs"), ForkServer::State::kReady);
  const std::shared_ptr<HostProcess> forked = Process();
  order_ = Order("host_test_envs:slow_start", {{"seconds", 1000}});
  const std::shared_ptr<HostProcess> another = Process();
  ASSERT_EQ(kill(server_->pid(), SIGKILL), 0);
  ASSERT_TRUE(Await([this] { return server_->Look() == ForkServer::State::kEnded; }));
  EXPECT_TRUE(forked->AwaitDescription().ok());
  EXPECT_EQ(StateOf(Process()->pid()).parent, getpid()) << "started without it";
  ASSERT_EQ(kill(another->pid(), SIGKILL), 0);
  const absl::Status status = another->AwaitDescription().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("how is not known: the process that forked it has ended"));
}

TEST_F(ForkServerTest, WithoutItsServerAProcessThatIsKilledLeavesNothingBehind) {
  TemporaryFolder folder;
  const std::string log = folder.File("log");
  ASSERT_EQ(Start("host_test_envs"), ForkServer::State::kReady);
  order_ = Order("host_test_envs:with_child", {{"log", log}});
  std::shared_ptr<HostProcess> forked = Process();
  ASSERT_TRUE(forked->AwaitDescription().ok());
  const pid_t child = LeftBehind(log);
  ASSERT_TRUE(Lives(child));
  ASSERT_EQ(kill(server_->pid(), SIGKILL), 0);
  ASSERT_TRUE(Await([this] { return server_->Look() == ForkServer::State::kEnded; }));
  forked = nullptr;
  EXPECT_TRUE(Await([child] { return !Lives(child); }));
}

TEST_F(ForkServerTest, AFileThatTheModuleOpensIsTheForksToo) {
  TemporaryFolder folder;
  const std::string log = folder.File("log");
  ASSERT_EQ(setenv("HOST_TEST_LOG", log.c_str(), 1), 0);
  EXPECT_EQ(Start("host_test_files"), ForkServer::State::kReady);
  unsetenv("HOST_TEST_LOG");
  const std::shared_ptr<HostProcess> forked = Process();
  EXPECT_TRUE(forked->AwaitDescription().ok());
  EXPECT_EQ(CountLines(log, "made"), 1);
}

TEST_F(ForkServerTest, AServerThatDoesNotAnswerIsGivenUp) {
  ASSERT_EQ(Start("host_test_envs"), ForkServer::State::kReady);
  ASSERT_EQ(kill(server_->pid(), SIGSTOP), 0);
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  EXPECT_EQ(StateOf(Process()->pid()).parent, getpid());
  EXPECT_GE(base::Clock::Real().SteadyNow() - begin, ForkServer::kReplyTimeout);
  EXPECT_EQ(server_->Look(), ForkServer::State::kEnded);
}

TEST_F(ForkServerTest, ItEndsWithItsOwner) {
  ASSERT_EQ(Start("host_test_envs"), ForkServer::State::kReady);
  const pid_t pid = server_->pid();
  server_ = nullptr;
  EXPECT_EQ(StateOf(pid).state, '-');
}

/// Ends the only process of a pool until a fork has taken its place.
void KillUntilForked(HostPool& pool, Player& player) {
  ASSERT_TRUE(Await([&] {
    if (StateOf(pool.PidsForTesting()[0]).parent != getpid()) return true;
    kill(pool.PidsForTesting()[0], SIGKILL);
    EXPECT_FALSE(player.Step(0).ok());
    EXPECT_TRUE(player.Reset().ok());
    return false;
  }));
}

TEST(ForkServerPoolTest, ARestartForksAndHowItEndsIsTold) {
  HostOptions options = Options(1);
  options.max_restarts = 1000;
  auto pool = MakePool("Faulty", options, {{"faults", "crash,exit"}, {"at_step", int64_t{1'000'000}}});
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  KillUntilForked(**pool, player);
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(player.Step(1).ok());
  EXPECT_EQ(player.buffers().observation(0, 0)[1], 3.0f);
  ASSERT_EQ(kill((*pool)->PidsForTesting()[0], SIGSEGV), 0);
  EXPECT_THAT(std::string(player.Step(0).message()), HasSubstr("signal 11"));
  ASSERT_TRUE(player.Reset().ok());
  EXPECT_NE(StateOf((*pool)->PidsForTesting()[0]).parent, getpid());
  EXPECT_EQ((*pool)->stats().restarts, (*pool)->stats().deaths);
}

TEST(ForkServerPoolTest, WhatAProcessLeavesBehindIsKilled) {
  TemporaryFolder folder;
  const std::string log = folder.File("log");
  HostOptions options = Options(1);
  options.max_restarts = 1000;
  auto pool = MakePool("Faulty", options, {{"faults", "litter"}, {"at_step", int64_t{2}}, {"log", log}});
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  const auto left = [&](int64_t count) {
    ASSERT_TRUE(player.Step(0).ok());
    EXPECT_THAT(std::string(player.Step(0).message()), AllOf(HasSubstr("exited with 3"), HasSubstr("step 2")));
    ASSERT_EQ(CountLines(log, "left"), count);
    const pid_t pid = LeftBehind(log);
    EXPECT_TRUE(Await([pid] { return !Lives(pid); })) << pid;
    ASSERT_TRUE(player.Reset().ok());
  };
  left(1);  // of a process that was started
  KillUntilForked(**pool, player);
  left(2);  // of one that was forked
}

TEST(ForkServerPoolTest, AnotherServerTakesThePlaceOfOneThatDied) {
  HostOptions options = Options(1);
  options.max_restarts = 1000;
  auto pool = MakePool("counter", options);
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  KillUntilForked(**pool, player);
  const pid_t first = StateOf((*pool)->PidsForTesting()[0]).parent;
  ASSERT_EQ(kill(first, SIGKILL), 0);
  ASSERT_TRUE(player.Step(0).ok()) << "its forks go on";
  ASSERT_TRUE(Await([&] {
    const pid_t parent = StateOf((*pool)->PidsForTesting()[0]).parent;
    if (StateOf(parent).parent == getpid() && parent != first) return true;
    kill((*pool)->PidsForTesting()[0], SIGKILL);
    EXPECT_FALSE(player.Step(0).ok());
    EXPECT_TRUE(player.Reset().ok());
    return false;
  }));
}

TEST(ForkServerPoolTest, ItMayBeSwitchedOff) {
  HostOptions options = Options(1);
  options.fork_server = false;
  auto pool = MakePool("counter", options);
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  for (int life = 0; life < 3; ++life) {
    ASSERT_EQ(kill((*pool)->PidsForTesting()[0], SIGKILL), 0);
    EXPECT_FALSE(player.Step(0).ok());
    ASSERT_TRUE(player.Reset().ok());
    EXPECT_EQ(CountChildren("troupe.fork_server"), 0);
  }
}

TEST(ForkServerPoolTest, ForksDieWithTheWorker) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t worker = fork();
  if (worker == 0) {
    HostOptions options = Options(1);
    options.max_restarts = 1000;
    auto pool = MakePool("counter", options);
    Player player(**pool);
    if (!player.Reset().ok()) _exit(1);
    KillUntilForked(**pool, player);
    const pid_t pid = (*pool)->PidsForTesting()[0];
    const pid_t pids[2] = {pid, StateOf(pid).parent};
    if (write(pipe_fds[1], pids, sizeof(pids)) != sizeof(pids)) _exit(1);
    kill(getpid(), SIGKILL);
  }
  close(pipe_fds[1]);
  pid_t pids[2] = {0, 0};
  ASSERT_EQ(read(pipe_fds[0], pids, sizeof(pids)), static_cast<ssize_t>(sizeof(pids)));
  int status = 0;
  ASSERT_EQ(waitpid(worker, &status, 0), worker);
  EXPECT_TRUE(Await([&] { return !Lives(pids[0]) && !Lives(pids[1]); }));
  close(pipe_fds[0]);
}

}  // namespace
}  // namespace troupe::envhost
