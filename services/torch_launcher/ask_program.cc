#include "services/torch_launcher/ask_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/await.h"
#include "lib/base/log.h"

namespace troupe::services {
namespace {

constexpr size_t kMaxAnswerBytes = 64 * 1024;

/// In the child, between fork and exec: system calls only.
[[noreturn]] void Become(char* const* argv, int output) {
  setpgid(0, 0);  // so that what it starts is killed with it
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

/// Reads to the end of `input` or to the deadline; false: the deadline came. What is more than the limit is dropped.
bool ReadUntil(int input, const base::Deadline& deadline, std::string* text) {
  char buffer[4096];
  for (;;) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline.left());
    if (left_ms <= 0) return false;
    pollfd entry = {input, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left_ms));
    if (ready <= 0) continue;  // the time is over, or a signal came
    const ssize_t got = read(input, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    if (text->size() < kMaxAnswerBytes) text->append(buffer, static_cast<size_t>(got));
  }
}

/// The process's end, or nullopt at the deadline.
std::optional<int> AwaitExit(pid_t child, const base::Deadline& deadline) {
  int status = 0;
  const auto ended = [child, &status] { return waitpid(child, &status, WNOHANG) == child; };
  if (!base::AwaitPolling(absl::Milliseconds(2), deadline, ended)) return std::nullopt;
  return status;
}

}  // namespace

std::string ProgramAnswer::EndedWith() const {
  return WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status)) : absl::StrCat(WEXITSTATUS(status));
}

std::string ProgramAnswer::LastLine() const {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "nothing" : base::LogSafe(std::string(absl::StripAsciiWhitespace(lines.back())));
}

absl::StatusOr<ProgramAnswer> AskProgram(std::vector<std::string> command, absl::Duration timeout) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return absl::InternalError(absl::StrCat("cannot be started: ", std::strerror(errno)));
  }
  const base::Deadline deadline = base::Deadline::After(timeout);
  const pid_t child = fork();
  if (child == 0) Become(argv.data(), pipe_fds[1]);
  const int fork_error = errno;
  close(pipe_fds[1]);
  ProgramAnswer answer;
  std::optional<int> status;
  if (child > 0) {
    setpgid(child, child);  // it does so, too; whoever comes first
    if (ReadUntil(pipe_fds[0], deadline, &answer.text)) status = AwaitExit(child, deadline);
    if (!status.has_value()) {
      kill(-child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  close(pipe_fds[0]);
  if (child < 0) return absl::InternalError(absl::StrCat("cannot be started: ", std::strerror(fork_error)));
  if (!status.has_value()) {
    return absl::DeadlineExceededError(absl::StrCat("did not answer within ", absl::FormatDuration(timeout)));
  }
  answer.status = *status;
  return answer;
}

}  // namespace troupe::services
