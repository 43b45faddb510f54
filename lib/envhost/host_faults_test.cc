// What goes wrong in Python environments and their processes, and what that costs.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/clock.h"
#include "lib/base/traceback.h"
#include "lib/env/slot_buffers.h"
#include "lib/envhost/host_env.h"
#include "lib/envhost/host_pool.h"
#include "lib/envhost/testing/player.h"
#include "lib/envhost/testing/processes.h"

namespace troupe::envhost {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What a fault of one kind costs and says.
struct FaultCase {
  std::string fault;
  bool kills;  ///< the process
  std::string says;
};

// A step takes as long as Python wants; the end of what waits for it must not.
TEST(AbandonedTest, NobodyWaitsForAStepOrAStart) {
  const auto abandoned = std::make_shared<std::atomic<bool>>(false);
  HostOptions options = Options(1);
  options.abandoned = abandoned;
  options.step_timeout = absl::Hours(1);
  options.start_timeout = absl::Hours(1);
  auto pool = MakePool("Faulty", options, {{"faults", "hang"}, {"at_step", int64_t{1}}});
  ASSERT_TRUE(pool.ok());
  Player hangs(**pool, 0);
  ASSERT_TRUE(hangs.Reset().ok());
  std::thread person([&] { *abandoned = true; });
  const absl::Status status = hangs.Step(1);
  person.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("nobody waits for Python process"));
  EXPECT_TRUE(absl::IsCancelled(hangs.Reset()));
  *abandoned = false;
  EXPECT_TRUE(hangs.Reset().ok()) << "another process takes its place";
}

class FaultTest : public ::testing::TestWithParam<FaultCase> {};

TEST_P(FaultTest, CostsItsEpisodeAndNothingElse) {
  const FaultCase& fault = GetParam();
  HostOptions options = Options(2);
  options.step_timeout = absl::Milliseconds(200);
  auto pool = MakePool("Faulty", options, {{"faults", fault.fault}, {"at_step", int64_t{3}}});
  ASSERT_TRUE(pool.ok());
  Player hurt(**pool, 0);   // first process
  Player other(**pool, 1);  // second
  ASSERT_TRUE(hurt.Reset().ok());
  ASSERT_TRUE(other.Reset().ok());
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(hurt.Step(1).ok());
    ASSERT_TRUE(hurt.Step(1).ok());
    const absl::Status status = hurt.Step(1);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("environment python:host_test_envs:Faulty (env 0, episode"), HasSubstr("step 3"),
                      HasSubstr(fault.says)));
    const absl::Status again = hurt.Reset();
    ASSERT_TRUE(again.ok()) << again;
  }
  ASSERT_TRUE(other.Step(1).ok());
  EXPECT_EQ(other.buffers().observation(0, 0)[1], 1.0f) << "the other environment lost its episode";
  const HostStats stats = (*pool)->stats();
  EXPECT_EQ(stats.deaths, fault.kills ? 2 : 0);
  EXPECT_EQ(stats.restarts, fault.kills ? 2 : 0);
  EXPECT_EQ(stats.timeouts, fault.fault == "hang" ? 2 : 0);
  // What CheckedEnv finds (NaN) is not the host's to count.
  EXPECT_EQ(stats.errors, fault.fault == "nan" ? 0 : 2);
  EXPECT_EQ(stats.exceptions, fault.fault == "exception" || fault.fault == "system_exit" ? 2 : 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultTest,
    ::testing::Values(FaultCase{"crash", true, "signal 11"}, FaultCase{"exit", true, "exited with 3"},
                      FaultCase{"exception", false, "ValueError: the wheel came off"},
                      FaultCase{"system_exit", false, "SystemExit: 4"}, FaultCase{"hang", true, "within 200ms"},
                      FaultCase{"nan", false, "observation element 1"}, FaultCase{"shape", false, "agent b"},
                      FaultCase{"dtype", false, "agent b"}, FaultCase{"unknown_agent", false, "nobody"},
                      FaultCase{"missing_all", false, "__all__"}, FaultCase{"reward", false, "much"}),
    [](const ::testing::TestParamInfo<FaultCase>& info) { return info.param.fault; });

TEST(HostFaultsTest, AnExceptionBringsItsTracebackWithoutFramesOfOurs) {
  auto pool = MakePool("Faulty", Options(1), {{"faults", "exception"}, {"at_step", int64_t{1}}});
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  const absl::Status status = player.Step(0);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step: ValueError: the wheel came off (at "));
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  const std::string traceback = base::TracebackOf(status);
  EXPECT_THAT(traceback, ::testing::StartsWith("Traceback (most recent call last):\n  File "));
  EXPECT_THAT(traceback, HasSubstr("in fail\n    raise ValueError(\"the wheel came off\")"));
  EXPECT_EQ(traceback.find("_shm_env.py"), std::string::npos) << traceback;
}

TEST(HostFaultsTest, AKilledChildIsReplaced) {
  auto pool = MakePool("counter", Options(2));
  ASSERT_TRUE(pool.ok());
  Player first(**pool, 0), second(**pool, 1), third(**pool, 2);
  for (Player* player : {&first, &second, &third}) ASSERT_TRUE(player->Reset().ok());
  ASSERT_EQ(kill((*pool)->PidsForTesting()[0], SIGKILL), 0);
  EXPECT_THAT(std::string(first.Step(0).message()), HasSubstr("signal 9"));
  EXPECT_FALSE(third.Step(0).ok()) << "it lived in the same process";
  EXPECT_TRUE(second.Step(0).ok());
  EXPECT_TRUE(first.Reset().ok());
  EXPECT_TRUE(third.Reset().ok());
  EXPECT_TRUE(first.Step(0).ok());
  EXPECT_EQ((*pool)->stats().deaths, 1);
  EXPECT_EQ((*pool)->stats().restarts, 1);
  EXPECT_EQ((*pool)->stats().errors, 2);
}

TEST(HostFaultsTest, ACallerNeedNotWaitForARestart) {
  HostOptions options = Options(2);
  options.step_timeout = absl::Milliseconds(200);
  auto pool = MakePool("Faulty", options, {{"faults", "hang"}, {"at_step", int64_t{3}}});
  ASSERT_TRUE(pool.ok());
  auto made = (*pool)->MakeEnv();
  ASSERT_TRUE(made.ok());
  auto& env = dynamic_cast<HostEnv&>(**made);
  Player other(**pool, 1);
  env::SlotBuffers buffers(env.spec(), 1);
  space::ActionWord word;
  word.i32 = 1;
  const std::vector<const space::ActionWord*> rows = {&word, &word};
  // The other environment begins episode after episode until the first one has something to say.
  const auto play_other_until_settled = [&] {
    int64_t calls = 0;
    while (!env.Settled()) {
      EXPECT_TRUE(other.Reset().ok());
      ++calls;
    }
    return calls;
  };
  ASSERT_TRUE(other.Reset().ok());
  ASSERT_TRUE(env.Reset({1, base::EnvId(0), 0}, buffers.BeginStep(0)).ok());
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(env.Step(rows, buffers.BeginStep(0)).ok());
  ASSERT_TRUE(env.StartStep(rows).ok());
  EXPECT_GT(play_other_until_settled(), 0);
  EXPECT_EQ(env.Finish(buffers.BeginStep(0)).code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(env.StartReset({1, base::EnvId(0), 1}).ok());
  EXPECT_GT(play_other_until_settled(), 0) << "another process was started, which takes longer than a step";
  EXPECT_TRUE(env.Finish(buffers.BeginStep(0)).ok());
}

TEST(HostFaultsTest, RestartsHaveABudget) {
  HostOptions options = Options(1);
  options.max_restarts = 2;
  auto pool = MakePool("Faulty", options, {{"faults", "exit"}, {"at_step", int64_t{1}}});
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  for (int life = 0; life < 3; ++life) {
    ASSERT_TRUE(player.Reset().ok());
    EXPECT_FALSE(player.Step(0).ok());
  }
  const absl::Status status = player.Reset();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("restarted 2 times"), HasSubstr("max_restarts"), HasSubstr("exited with 3")));
}

TEST(HostFaultsTest, AClosedEnvironmentIsMadeAnewAfterAnException) {
  TemporaryFolder folder;
  const std::string log = folder.File("log");
  {
    auto pool = MakePool("Faulty", Options(1), {{"faults", "exception"}, {"at_step", int64_t{1}}, {"log", log}});
    ASSERT_TRUE(pool.ok());
    Player player(**pool);
    for (int episode = 0; episode < 3; ++episode) {
      ASSERT_TRUE(player.Reset().ok());
      EXPECT_FALSE(player.Step(0).ok());
    }
  }
  EXPECT_EQ(CountLines(log, "made"), 3);
  EXPECT_EQ(CountLines(log, "closed"), 3);
}

TEST(HostFaultsTest, AProcessThatDoesNotLeaveIsKilled) {
  HostOptions options = Options(2);
  options.leave_timeout = absl::Milliseconds(200);
  auto pool = MakePool("counter", options, {{"close_seconds", int64_t{1000}}});
  ASSERT_TRUE(pool.ok());
  pid_t pid = 0;
  {
    Player first(**pool, 0), second(**pool, 1);
    ASSERT_TRUE(first.Reset().ok());
    ASSERT_TRUE(second.Reset().ok());
    pid = (*pool)->PidsForTesting()[0];
  }
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  *pool = nullptr;
  EXPECT_LT(base::Clock::Real().SteadyNow() - begin, absl::Seconds(20))
      << "an environment's close is waited for without end";
  EXPECT_NE(kill(pid, 0), 0) << "it lives, or is a zombie";
}

TEST(HostFaultsTest, ProcessesDieWithTheWorker) {
  int pids[2];
  ASSERT_EQ(pipe(pids), 0);
  const pid_t worker = fork();
  if (worker == 0) {
    // One process is in the middle of an endless step, another one waits for requests.
    auto pool = MakePool("Faulty", Options(2), {{"faults", "hang"}, {"at_step", int64_t{1}}});
    auto first = (*pool)->MakeEnv(), second = (*pool)->MakeEnv();
    env::SlotBuffers buffers((*first)->spec(), 1);
    if (!(*first)->Reset({1, base::EnvId(0), 0}, buffers.BeginStep(0)).ok()) _exit(1);
    if (!(*second)->Reset({1, base::EnvId(1), 0}, buffers.BeginStep(0)).ok()) _exit(1);
    space::ActionWord word;
    word.i32 = 0;
    const std::vector<const space::ActionWord*> rows = {&word, &word};
    if (!(*first)->StartStep(rows).ok()) _exit(1);
    for (const pid_t pid : (*pool)->PidsForTesting()) {
      if (write(pids[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    }
    kill(getpid(), SIGKILL);
  }
  close(pids[1]);
  pid_t children[2] = {0, 0};
  ASSERT_EQ(read(pids[0], children, sizeof(children[0])), static_cast<ssize_t>(sizeof(children[0])));
  ASSERT_EQ(read(pids[0], children + 1, sizeof(children[1])), static_cast<ssize_t>(sizeof(children[1])));
  int status = 0;
  ASSERT_EQ(waitpid(worker, &status, 0), worker);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(Await([&] { return !Lives(children[0]) && !Lives(children[1]); }));
  close(pids[0]);
}

}  // namespace
}  // namespace troupe::envhost
