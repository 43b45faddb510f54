#include "lib/envhost/python_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"

namespace troupe::envhost {
namespace {

constexpr size_t kMaxPrintedLine = 4096;
constexpr size_t kLastLines = 12;

/// A file descriptor with an owner, above those that the child gets, so that dup2 in the child overwrites no source.
class Fd {
 public:
  explicit Fd(int fd) {
    if (fd < 0) return;
    fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 16);
    close(fd);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// Our environment with the package's folder first on PYTHONPATH. Libraries with thread pools of their own get one
/// thread where the user said nothing: there is a process a core already.
std::vector<std::string> ChildEnvironment(const std::string& package_folder) {
  std::vector<std::string> entries;
  std::string python_path = package_folder;
  bool omp = false, openblas = false, mkl = false;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    if (absl::StartsWith(text, "PYTHONPATH=")) {
      absl::StrAppend(&python_path, python_path.empty() ? "" : ":", text.substr(11));
      continue;
    }
    omp = omp || absl::StartsWith(text, "OMP_NUM_THREADS=");
    openblas = openblas || absl::StartsWith(text, "OPENBLAS_NUM_THREADS=");
    mkl = mkl || absl::StartsWith(text, "MKL_NUM_THREADS=");
    entries.emplace_back(text);
  }
  if (!python_path.empty()) entries.push_back("PYTHONPATH=" + python_path);
  if (!omp) entries.push_back("OMP_NUM_THREADS=1");
  if (!openblas) entries.push_back("OPENBLAS_NUM_THREADS=1");
  if (!mkl) entries.push_back("MKL_NUM_THREADS=1");
  entries.push_back("PYTHONUNBUFFERED=1");
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

constexpr char kEndNotKnown[] = "ended (how is not known: SIGCHLD is ignored)";

std::string HowOf(int status) {
  return WIFSIGNALED(status)
             ? absl::StrCat("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")")
             : absl::StrCat("exited with ", WEXITSTATUS(status));
}

absl::Status SystemError(absl::string_view what, int error) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PythonChild>> PythonChild::Start(const std::string& interpreter,
                                                                const std::string& package_folder, int memory_fd,
                                                                std::string name) {
  int sockets[2], output[2], lifeline[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return SystemError("socketpair", errno);
  Fd control(sockets[0]), child_control(sockets[1]);
  if (pipe2(output, O_CLOEXEC) != 0) return SystemError("pipe", errno);
  Fd read_output(output[0]), child_output(output[1]);
  if (pipe2(lifeline, O_CLOEXEC) != 0) return SystemError("pipe", errno);
  Fd child_lifeline(lifeline[0]), hold_lifeline(lifeline[1]);
  Fd memory(fcntl(memory_fd, F_DUPFD_CLOEXEC, 16));
  for (const Fd* fd :
       {&control, &child_control, &read_output, &child_output, &child_lifeline, &hold_lifeline, &memory}) {
    if (fd->get() < 0) return SystemError("no file descriptor is left", EMFILE);
  }
  fcntl(control.get(), F_SETFL, O_NONBLOCK);
  fcntl(read_output.get(), F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  const std::pair<int, int> given[] = {{child_output.get(), STDOUT_FILENO},
                                       {child_output.get(), STDERR_FILENO},
                                       {child_control.get(), 3},
                                       {memory.get(), 4},
                                       {child_lifeline.get(), 5}};
  for (const auto& [from, to] : given) posix_spawn_file_actions_adddup2(&files, from, to);
  posix_spawn_file_actions_addclosefrom_np(&files, 6);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);  // a terminal's Ctrl-C reaches us alone
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> words = {interpreter, "-m", "troupe.env_host"};
  std::vector<std::string> environment = ChildEnvironment(package_folder);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, interpreter.c_str(), &files, &attributes, Pointers(words).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return SystemError(absl::StrCat("cannot start ", base::LogSafe(interpreter)), error);
  return std::unique_ptr<PythonChild>(
      new PythonChild(pid, control.Release(), read_output.Release(), hold_lifeline.Release(), std::move(name)));
}

PythonChild::PythonChild(pid_t pid, int control_fd, int output_fd, int lifeline_fd, std::string name)
    : pid_(pid), control_fd_(control_fd), output_fd_(output_fd), lifeline_fd_(lifeline_fd), name_(std::move(name)) {}

PythonChild::~PythonChild() {
  Kill();
  close(control_fd_);
  close(output_fd_);
  close(lifeline_fd_);
}

absl::Status PythonChild::Send(absl::string_view line, absl::Duration timeout) {
  const absl::Duration deadline = base::Clock::Real().SteadyNow() + timeout;
  std::string text = absl::StrCat(line, "\n");
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = send(control_fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count > 0) {
      sent += static_cast<size_t>(count);
    } else if (count < 0 && errno != EAGAIN && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("the control channel is closed: ", std::strerror(errno)));
    } else if (base::Clock::Real().SteadyNow() >= deadline) {
      return absl::DeadlineExceededError("the process does not read its control channel");
    } else {
      DrainOutput();
      pollfd writable = {control_fd_, POLLOUT, 0};
      poll(&writable, 1, 10);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> PythonChild::TryReceive(absl::Duration wait) {
  DrainOutput();
  pollfd readable[2] = {{control_fd_, POLLIN, 0}, {output_fd_, POLLIN, 0}};
  poll(readable, 2, static_cast<int>(absl::ToInt64Milliseconds(wait)));
  char data[1 << 16];
  while (true) {
    const size_t end = received_.find('\n', searched_);
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      searched_ = 0;
      return std::optional<std::string>(std::move(line));
    }
    searched_ = received_.size();
    if (received_.size() > kMaxLineBytes) {
      return absl::ResourceExhaustedError(absl::StrCat("got a line of more than ", kMaxLineBytes, " bytes from it"));
    }
    const ssize_t count = recv(control_fd_, data, sizeof(data), 0);
    if (count <= 0) return std::optional<std::string>();
    received_.append(data, static_cast<size_t>(count));
  }
}

void PythonChild::DrainOutput() {
  char data[1 << 14];
  // A child that prints without end must not hold us here.
  for (int reads = 0; reads < 64; ++reads) {
    const ssize_t count = read(output_fd_, data, sizeof(data));
    if (count <= 0) return;
    for (const char c : absl::string_view(data, static_cast<size_t>(count))) {
      if (c != '\n') printed_.push_back(c);
      if (c != '\n' && printed_.size() < kMaxPrintedLine) continue;
      LogLine(printed_);
      printed_.clear();
    }
  }
}

void PythonChild::LogLine(absl::string_view line) {
  if (line.empty()) return;
  if (last_lines_.size() == kLastLines) last_lines_.erase(last_lines_.begin());
  last_lines_.emplace_back(line.substr(0, 300));
  const absl::Duration now = base::Clock::Real().SteadyNow();
  if (now - period_begin_ > kLogPeriod) {
    if (lines_in_period_ > kLogLines) {
      TROUPE_WARN("{} pid={} printed more, dropped lines={}", name_, pid_, lines_in_period_ - kLogLines);
    }
    period_begin_ = now;
    lines_in_period_ = 0;
  }
  if (++lines_in_period_ <= kLogLines) {
    TROUPE_INFO("{} pid={}: {}", name_, pid_, base::LogSafe(std::string_view(line.data(), line.size()), 1000));
  }
}

std::string PythonChild::LastOutput() const { return absl::StrJoin(last_lines_, " | "); }

void PythonChild::Reaped(std::string how) {
  ended_ = true;
  how_it_ended_ = std::move(how);
  DrainOutput();
  if (!printed_.empty()) LogLine(printed_);
  printed_.clear();
}

bool PythonChild::Ended() {
  if (ended_) return true;
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    if (errno != ECHILD) return false;
    Reaped(kEndNotKnown);  // its number may be another's by now
    return true;
  }
  if (info.si_pid != pid_) return false;
  KillAndReap();  // what it started and left behind; not yet reaped, its group is still its own
  return true;
}

void PythonChild::Terminate() {
  if (!Ended()) kill(pid_, SIGTERM);
}

void PythonChild::Kill() {
  if (!Ended()) KillAndReap();
}

void PythonChild::KillAndReap() {
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  int status = 0;
  pid_t reaped = 0;
  while ((reaped = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
  }
  Reaped(reaped == pid_ ? HowOf(status) : kEndNotKnown);
}

}  // namespace troupe::envhost
