#include "services/torch_launcher/ask_python.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/await.h"
#include "lib/base/log.h"

namespace troupe::services {
namespace {

namespace fs = std::filesystem;

constexpr char kMarker[] = "troupe-libtorch:";
// A folder torch/ where we were started is no package; the interpreter's own path has all that are.
constexpr char kQuestion[] = R"(import os, sys
sys.path = [folder for folder in sys.path if folder]
import importlib.util
spec = importlib.util.find_spec("torch")
folders = list(spec.submodule_search_locations or []) if spec and spec.origin else []
sys.stdout.buffer.write(b"\ntroupe-libtorch:" + os.fsencode(folders[0] if folders else "") + b"\n")
)";
constexpr size_t kMaxAnswerBytes = 64 * 1024;

std::optional<std::string> FindPython(const std::string& path) {
  for (const std::string& folder : std::vector<std::string>(absl::StrSplit(path, ':', absl::SkipEmpty()))) {
    const fs::path program = fs::path(folder) / "python3";
    std::error_code error;
    if (fs::is_regular_file(program, error) && access(program.c_str(), X_OK) == 0) return program.string();
  }
  return std::nullopt;
}

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

std::string LastLine(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "nothing" : base::LogSafe(std::string(absl::StripAsciiWhitespace(lines.back())));
}

}  // namespace

absl::StatusOr<std::string> AskPythonForTorch(const std::string& path, absl::Duration timeout) {
  std::optional<std::string> program = FindPython(path);
  if (!program.has_value()) return absl::NotFoundError("there is no python3 on the PATH");
  const std::string python = absl::StrCat("python3 (", base::LogSafe(*program), ")");
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0)
    return absl::InternalError(absl::StrCat("a pipe failed: ", std::strerror(errno)));
  std::string command = "-c", question = kQuestion;
  char* const argv[] = {program->data(), command.data(), question.data(), nullptr};
  const base::Deadline deadline = base::Deadline::After(timeout);
  const pid_t child = fork();
  if (child == 0) Become(argv, pipe_fds[1]);
  const int fork_error = errno;
  close(pipe_fds[1]);
  std::string answer;
  std::optional<int> status;
  if (child > 0) {
    setpgid(child, child);  // it does so, too; whoever comes first
    if (ReadUntil(pipe_fds[0], deadline, &answer)) status = AwaitExit(child, deadline);
    if (!status.has_value()) {
      kill(-child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  close(pipe_fds[0]);
  if (child < 0) return absl::InternalError(absl::StrCat(python, " cannot be started: ", std::strerror(fork_error)));
  if (!status.has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat(python, " did not say within ", absl::FormatDuration(timeout), " where its package torch is"));
  }
  std::optional<std::string> folder;
  for (absl::string_view line : absl::StrSplit(answer, '\n')) {
    if (absl::ConsumePrefix(&line, kMarker)) folder = std::string(line);
  }
  if (*status != 0 || !folder.has_value()) {
    return absl::InternalError(absl::StrCat(
        python, " could not say where its package torch is, it ended with ",
        WIFSIGNALED(*status) ? absl::StrCat("signal ", WTERMSIG(*status)) : absl::StrCat(WEXITSTATUS(*status)),
        " and said \"", LastLine(answer), "\""));
  }
  if (folder->empty()) return absl::NotFoundError(absl::StrCat(python, " has no package torch"));
  return *folder;
}

}  // namespace troupe::services
