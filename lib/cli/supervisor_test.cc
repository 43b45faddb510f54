#include "lib/cli/supervisor.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/cli/shared_terminal.h"
#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

/// Real processes, which are small shell scripts here. What they do is written into files of a folder.
class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    std::string path = testing::TempDir() + "/supervisor_XXXXXX";
    folder_ = mkdtemp(path.data());
  }
  ~SupervisorTest() override { fs::remove_all(folder_); }

  std::vector<std::string> Shell(const std::string& script) const {
    return {"/bin/sh", "-c", "cd " + folder_ + "; " + script};
  }

  Supervisor::Options Options(const std::string& learner, const std::string& worker, int workers) const {
    Supervisor::Options options;
    options.learner_command = Shell(learner);
    options.worker_command = Shell(worker);
    options.num_workers = workers;
    options.socket_path = folder_ + "/socket";
    options.worker_grace = absl::Milliseconds(200);
    options.restart.backoff = {.initial = absl::Milliseconds(1), .max = absl::Milliseconds(5), .multiplier = 2.0};
    return options;
  }

  int Lines(const std::string& file) const {
    std::ifstream stream(folder_ + "/" + file);
    int lines = 0;
    for (std::string line; std::getline(stream, line);) ++lines;
    return lines;
  }

  bool AwaitLines(const std::string& file, int lines) const {
    for (int i = 0; i < 2000 && Lines(file) < lines; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return Lines(file) >= lines;
  }

  std::string Text(const std::string& file) const {
    std::ifstream stream(folder_ + "/" + file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }

  pid_t FirstPid(const std::string& file) const {
    std::ifstream stream(folder_ + "/" + file);
    pid_t pid = 0;
    stream >> pid;
    return pid;
  }

  /// Whether a process is there; one that nobody reaped yet counts as gone.
  static bool Lives(pid_t pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string ignored;
    std::string state;
    stat >> ignored >> ignored >> state;
    return !state.empty() && state != "Z";
  }

  std::string folder_;
};

/// Ends by itself when that many workers have begun.
std::string LearnerUntilWorkers(int count) {
  return absl::StrCat("trap 'exit 0' TERM; touch socket; while [ $(cat workers 2> /dev/null | wc -l) -lt ", count,
                      " ]; do sleep 0.01; done");
}

// Ends when it is told to, as the learner does.
constexpr char kLearner[] = "trap 'exit 0' TERM; echo $$ >> learner; touch socket; while :; do sleep 0.01; done";

TEST_F(SupervisorTest, EndsWithTheLearnersExitCode) {
  Supervisor supervisor(Options("exit 7", "echo $$ >> workers", 2), &base::Clock::Real());
  EXPECT_EQ(*supervisor.Run(), 7);
  EXPECT_EQ(Lines("workers"), 0) << "workers wait for the socket";
}

TEST_F(SupervisorTest, AKilledLearnerIsReported) {
  Supervisor supervisor(Options("kill -9 $$", "", 0), &base::Clock::Real());
  EXPECT_EQ(*supervisor.Run(), 137);
}

TEST_F(SupervisorTest, KilledWorkersAreReplacedAndLeaveWithTheLearner) {
  // mkdir works once: exactly two workers kill themselves. The learner ends when the fourth has come.
  const std::string learner = "touch socket; while [ $(cat workers 2> /dev/null | wc -l) -lt 4 ]; do sleep 0.01; done";
  const std::string worker =
      "echo $$ >> workers; mkdir one 2> /dev/null && kill -9 $$; mkdir two 2> /dev/null && kill -9 $$; "
      "trap 'exit 0' TERM; while :; do sleep 0.01; done";
  Supervisor::Options options = Options(learner, worker, 2);
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  {
    Supervisor supervisor(options, &base::Clock::Real());
    EXPECT_EQ(*supervisor.Run(), 0);
  }
  EXPECT_EQ(Lines("workers"), 4);
  EXPECT_LT(base::Clock::Real().SteadyNow() - begin, absl::Seconds(30));
  std::ifstream workers(folder_ + "/workers");
  for (pid_t pid = 0; workers >> pid;) EXPECT_FALSE(Lives(pid)) << pid;
}

TEST_F(SupervisorTest, FifteenBarrenLivesOfAWorkerEndTheRun) {
  Supervisor supervisor(Options(kLearner, "echo $$ >> workers; exit 3", 1), &base::Clock::Real());
  const absl::StatusOr<int> code = supervisor.Run();
  EXPECT_EQ(code.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(base::ExitCodeOf(code.status()), base::ExitCode::kFailed);
  EXPECT_EQ(Lines("workers"), 15);
  EXPECT_FALSE(Lives(FirstPid("learner")));
}

TEST_F(SupervisorTest, ARunEndsWhenEveryWorkerWasGivenUp) {
  Supervisor supervisor(Options(kLearner, "echo $$ >> workers; exit 3", 2), &base::Clock::Real());
  EXPECT_EQ(supervisor.Run().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Lines("workers"), 30);
}

// The first argument of a worker's script is the descriptor on which it tells that its life was fruitful.
constexpr char kTell[] = "echo $$ > /proc/self/fd/$1; ";

TEST_F(SupervisorTest, FruitfulLivesCostNothing) {
  Supervisor supervisor(Options(LearnerUntilWorkers(40), absl::StrCat("echo $$ >> workers; ", kTell, "kill -9 $$"), 1),
                        &base::Clock::Real());
  const absl::StatusOr<int> code = supervisor.Run();
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
}

TEST_F(SupervisorTest, AFruitfulLifeForgivesTheBarrenOnesBeforeIt) {
  // Every fifteenth life is fruitful.
  const std::string worker =
      absl::StrCat("echo $$ >> workers; [ $(( $(cat workers | wc -l) % 15 )) -ne 0 ] && exit 3; ", kTell, "exit 3");
  Supervisor supervisor(Options(LearnerUntilWorkers(50), worker, 1), &base::Clock::Real());
  const absl::StatusOr<int> code = supervisor.Run();
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(*code, 0);
}

TEST_F(SupervisorTest, OneWorkersFruitIsNotAnothers) {
  // The second of two workers waits for ever and is fruitful; the first one's lives are barren all the same.
  const std::string worker = absl::StrCat("echo $$ >> workers; mkdir one 2> /dev/null && { ", kTell,
                                          "while :; do sleep 0.01; done; }; echo $$ >> barren; exit 3");
  const std::string learner =
      "trap 'exit 0' TERM; touch socket; while [ $(cat barren 2> /dev/null | wc -l) -lt 15 ]; do sleep 0.01; done; "
      "sleep 0.3";
  Supervisor supervisor(Options(learner, worker, 2), &base::Clock::Real());
  EXPECT_EQ(*supervisor.Run(), 0) << "a worker is left";
  EXPECT_EQ(Lines("barren"), 15);
}

TEST_F(SupervisorTest, ARefusedWorkerIsNotStartedAgain) {
  Supervisor supervisor(Options(kLearner, "echo $$ >> workers; exit 78", 2), &base::Clock::Real());
  const absl::StatusOr<int> code = supervisor.Run();
  EXPECT_EQ(base::ExitCodeOf(code.status()), base::ExitCode::kRefused) << code.status();
  EXPECT_EQ(Lines("workers"), 2);
}

TEST_F(SupervisorTest, ASignalDrainsTheLearnerAndWorkersAreNotReplaced) {
  const std::string learner = "trap 'touch drained; exit 0' TERM; touch socket; while :; do sleep 0.01; done";
  const std::string worker = "echo $$ >> workers; trap 'exit 1' TERM; while [ ! -e drained ]; do sleep 0.01; done";
  Supervisor supervisor(Options(learner, worker, 1), &base::Clock::Real());
  std::thread person([&] {
    EXPECT_TRUE(AwaitLines("workers", 1));
    kill(getpid(), SIGTERM);  // blocked in every thread: the supervisor takes it
  });
  EXPECT_EQ(*supervisor.Run(), 0);
  person.join();
  EXPECT_TRUE(fs::exists(folder_ + "/drained"));
  EXPECT_EQ(Lines("workers"), 1);
}

TEST_F(SupervisorTest, AnInterruptInOrderIsItsOwnExitCode) {
  Supervisor supervisor(Options(kLearner, "echo $$ >> workers; while :; do sleep 0.01; done", 1), &base::Clock::Real());
  std::thread person([&] {
    EXPECT_TRUE(AwaitLines("workers", 1));
    kill(getpid(), SIGINT);
  });
  EXPECT_EQ(*supervisor.Run(), 130);
  person.join();
  EXPECT_TRUE(supervisor.ended_in_order());
}

TEST_F(SupervisorTest, ALearnersOwnCodesArePassedOn) {
  for (const int code : {1, 70, 78}) {
    Supervisor supervisor(Options(absl::StrCat("exit ", code), "", 0), &base::Clock::Real());
    EXPECT_EQ(*supervisor.Run(), code);
    EXPECT_FALSE(supervisor.ended_in_order());
  }
}

TEST_F(SupervisorTest, WorkersOfAKilledLearnerAreToldAtOnce) {
  // It waits for the learner to come back until it is told to leave.
  const std::string worker = "trap 'echo told >> told; exit 0' TERM; echo $$ >> workers; while :; do sleep 0.01; done";
  Supervisor::Options options = Options(absl::StrCat(LearnerUntilWorkers(2), "; kill -9 $$"), worker, 2);
  options.worker_grace = absl::Minutes(10);  // who is not told waits so long
  Supervisor supervisor(options, &base::Clock::Real());
  EXPECT_EQ(*supervisor.Run(), 137);
  EXPECT_EQ(Lines("told"), 2);
}

// Notes what it is told, and ends in order when a test says so.
constexpr char kSlowLearner[] =
    "trap 'echo got >> signals' TERM; echo $$ >> learner; touch socket; while [ ! -e go ]; do sleep 0.01; done";

// GNU timeout sends one signal to the process and one to its group.
TEST_F(SupervisorTest, ACopyOfASignalIsNoSecondOne) {
  base::FakeClock clock;  // stands still
  Supervisor supervisor(Options(kSlowLearner, "", 0), &clock);
  std::thread person([&] {
    EXPECT_TRUE(AwaitLines("learner", 1));
    kill(getpid(), SIGTERM);
    EXPECT_TRUE(AwaitLines("signals", 1));
    kill(getpid(), SIGTERM);
    sigset_t pending;
    do {  // until it has been taken
      sigpending(&pending);
    } while (sigismember(&pending, SIGTERM) == 1);
    std::ofstream(folder_ + "/go");
  });
  EXPECT_EQ(*supervisor.Run(), 0);
  person.join();
  EXPECT_TRUE(supervisor.ended_in_order());
  EXPECT_EQ(Lines("signals"), 1);
}

TEST_F(SupervisorTest, ASecondSignalKills) {
  base::FakeClock clock;
  Supervisor supervisor(Options(kSlowLearner, "trap '' TERM; echo $$ >> workers; while :; do sleep 0.01; done", 1),
                        &clock);
  std::thread person([&] {
    EXPECT_TRUE(AwaitLines("workers", 1));
    kill(getpid(), SIGINT);
    EXPECT_TRUE(AwaitLines("signals", 1));
    clock.Advance(absl::Milliseconds(base::FirstSignal::kCopyMs));
    kill(getpid(), SIGINT);
  });
  EXPECT_EQ(*supervisor.Run(), 130);
  person.join();
  EXPECT_FALSE(supervisor.ended_in_order());
  EXPECT_FALSE(Lives(FirstPid("learner")));
  EXPECT_FALSE(Lives(FirstPid("workers")));
}

TEST_F(SupervisorTest, QuitLeavesNobodyBehind) {
  // Neither leaves when it is asked to.
  const std::string stay = "trap '' TERM; touch socket; while :; do sleep 0.01; done";
  const pid_t parent = fork();
  if (parent == 0) {
    Supervisor supervisor(Options("echo $$ >> learner; " + stay, "echo $$ >> workers; " + stay, 2),
                          &base::Clock::Real());
    const absl::StatusOr<int> code = supervisor.Run();
    _exit(code.value_or(1));
  }
  ASSERT_TRUE(AwaitLines("workers", 2));
  kill(parent, SIGQUIT);
  std::optional<ChildExit> end;
  while (!end) end = TryReap(parent);
  EXPECT_EQ(end->ToString(), "exited with 131");
  std::ifstream workers(folder_ + "/workers");
  for (pid_t pid = 0; workers >> pid;) EXPECT_FALSE(Lives(pid)) << pid;
  EXPECT_FALSE(Lives(FirstPid("learner")));
  // What this test must not leave behind itself, should it fail.
  if (Lives(FirstPid("learner"))) kill(FirstPid("learner"), SIGKILL);
  std::ifstream again(folder_ + "/workers");
  for (pid_t pid = 0; again >> pid;) {
    if (Lives(pid)) kill(pid, SIGKILL);
  }
}

TEST_F(SupervisorTest, AProgramThatIsNotThereIsAnError) {
  Supervisor::Options options = Options("", "", 0);
  options.learner_command = {"/nonexistent/troupe-learner"};
  Supervisor supervisor(options, &base::Clock::Real());
  const absl::StatusOr<int> code = supervisor.Run();
  EXPECT_EQ(code.status().message(), "cannot start /nonexistent/troupe-learner: No such file or directory");
}

TEST_F(SupervisorTest, NoOrphanOutlivesAKilledParent) {
  const pid_t parent = fork();
  if (parent == 0) {
    Supervisor supervisor(Options(kLearner, "echo $$ >> workers; while :; do sleep 0.01; done", 1),
                          &base::Clock::Real());
    (void)supervisor.Run();
    _exit(0);
  }
  ASSERT_TRUE(AwaitLines("workers", 1));
  kill(parent, SIGKILL);
  std::optional<ChildExit> end;
  while (!end) end = TryReap(parent);
  for (int i = 0; i < 2000 && (Lives(FirstPid("workers")) || Lives(FirstPid("learner"))); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(Lives(FirstPid("workers")));
  EXPECT_FALSE(Lives(FirstPid("learner")));
}

/// What is written to stderr while it is there.
class StderrFile {
 public:
  explicit StderrFile(std::string path) : path_(std::move(path)), kept_(dup(STDERR_FILENO)) {
    const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(file, STDERR_FILENO);
    close(file);
  }
  ~StderrFile() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
  }

 private:
  const std::string path_;
  const int kept_;
};

// A learner that shows a progress block drew it over the warnings of this process and of the workers.
TEST_F(SupervisorTest, WhatIsSaidWhileTheLearnerDrawsIsForTheLearnerToPrint) {
  // It gets `--line-fd N` behind its command, as $0 and $1. It reads two lines and leaves the rest.
  const std::string learner =
      "trap 'exit 0' TERM; exec 9< /dev/fd/$1; echo \"$0\" > flag; touch socket; read -r line <&9; "
      "echo \"$line\" > relayed; read -r line <&9; echo \"$line\" >> relayed; touch go_on; "
      "while [ ! -e said ]; do sleep 0.01; done";
  const std::string worker =
      "echo $$ >> workers; [ $(cat workers | wc -l) -gt 1 ] && { while [ ! -e go_on ]; do sleep 0.01; done; "
      "echo out; echo err >&2; touch said; exec sleep 100; }; echo a warning >&2; kill -KILL $$";
  Supervisor::Options options = Options(learner, worker, 1);
  options.lines_through_learner = true;
  {
    const StderrFile stderr_file(folder_ + "/terminal");
    base::InitLogging("supervisor_test", "info");
    Supervisor supervisor(std::move(options), &base::Clock::Real());
    EXPECT_EQ(*supervisor.Run(), 0);
    TROUPE_WARN("the terminal is ours again");
  }
  EXPECT_EQ(Text("flag"), "--line-fd\n");
  const std::string relayed = Text("relayed");
  EXPECT_EQ(relayed.substr(0, 10), "a warning\n");
  EXPECT_NE(relayed.find("was killed by signal 9 (Killed)"), std::string::npos) << relayed;
  const std::string terminal = Text("terminal");
  EXPECT_EQ(terminal.find("a warning"), std::string::npos) << "the learner has printed it";
  EXPECT_NE(terminal.find("out\nerr\n"), std::string::npos) << "what the learner left behind\n" << terminal;
  EXPECT_NE(terminal.find("the terminal is ours again"), std::string::npos) << terminal;
}

TEST(SharedTerminalTest, WhoTakesItOverHasItsLearnerDrawNoMore) {
  SharedTerminal terminal;
  ASSERT_TRUE(terminal.Open().ok());
  struct flock drawing {};
  drawing.l_type = F_RDLCK;
  ASSERT_EQ(fcntl(terminal.learner_fd(), F_OFD_SETLK, &drawing), 0) << "as a learner that is stopped while it draws";
  terminal.TakeOver();  // returns all the same
  drawing.l_type = F_UNLCK;
  ASSERT_EQ(fcntl(terminal.learner_fd(), F_OFD_SETLK, &drawing), 0);
  terminal.TakeOver();
  drawing.l_type = F_RDLCK;
  EXPECT_NE(fcntl(terminal.learner_fd(), F_OFD_SETLK, &drawing), 0);
  EXPECT_EQ(errno, EAGAIN);
}

}  // namespace
}  // namespace troupe::cli
