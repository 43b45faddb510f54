#include "lib/cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace troupe::cli {
namespace {

/// In the child, between fork and exec: system calls only. Writes errno to `error_fd` when it fails.
[[noreturn]] void Become(char* const* argv, pid_t parent, int error_fd, int inherited_fd) {
  setpgid(0, 0);  // a terminal's Ctrl-C reaches the parent alone, which decides
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before the line above
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (inherited_fd >= 0) fcntl(inherited_fd, F_SETFD, 0);
  execv(argv[0], argv);
  const int error = errno;
  if (write(error_fd, &error, sizeof(error)) < 0) _exit(126);
  _exit(127);
}

}  // namespace

std::string ChildExit::ToString() const {
  if (signal != 0) return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
  return absl::StrCat("exited with ", code);
}

absl::StatusOr<pid_t> StartChild(const std::vector<std::string>& command, std::optional<int> inherited_fd) {
  std::vector<std::string> words = command;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pipe_fds[2];  // closed by a successful exec; carries errno from one that failed
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  std::fflush(stdout);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) Become(argv.data(), parent, pipe_fds[1], inherited_fd.value_or(-1));
  const int fork_error = errno;
  close(pipe_fds[1]);
  int exec_error = 0;
  ssize_t got = 0;
  if (child > 0) {
    do {
      got = read(pipe_fds[0], &exec_error, sizeof(exec_error));
    } while (got < 0 && errno == EINTR);
  }
  close(pipe_fds[0]);
  if (child < 0) return absl::InternalError(absl::StrCat("cannot start ", command[0], ": ", std::strerror(fork_error)));
  if (got > 0) {
    waitpid(child, nullptr, 0);
    return absl::InternalError(absl::StrCat("cannot start ", command[0], ": ", std::strerror(exec_error)));
  }
  return child;
}

std::optional<ChildExit> TryReap(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  ChildExit end;
  if (WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
  } else {
    end.code = WEXITSTATUS(status);
  }
  return end;
}

}  // namespace troupe::cli
