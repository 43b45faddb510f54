#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lib/base/check.h"

extern char** environ;

namespace troupe::fault {

/// A real process of a test: started with its object, killed with it if it is still there. Used by one thread.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    TROUPE_CHECK(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) == 0);
  }
  ~Process() {
    if (exited_.has_value()) return;
    kill(pid_, SIGKILL);
    // A stopped process dies of SIGKILL, too.
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int signal) const {
    if (!exited_.has_value()) kill(pid_, signal);
  }
  bool running() {
    Reap(WNOHANG);
    return !exited_.has_value();
  }
  /// The exit code, or 128 + the signal that ended it; nullopt when it still runs after `timeout`.
  std::optional<int> AwaitExit(absl::Duration timeout) {
    const absl::Time deadline = absl::Now() + timeout;
    while (running() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
    return exited_;
  }
  pid_t pid() const { return pid_; }

 private:
  void Reap(int options) {
    if (exited_.has_value()) return;
    int status = 0;
    if (waitpid(pid_, &status, options) != pid_) return;
    exited_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  pid_t pid_ = 0;
  std::optional<int> exited_;
};

}  // namespace troupe::fault
