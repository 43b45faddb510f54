#include "lib/envhost/python_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::envhost {
namespace {

constexpr size_t kMaxPrintedLine = 4096;
constexpr size_t kLastLines = 12;
constexpr size_t kMaxShown = 300;  // characters of the first line

/// A file descriptor with an owner, above those that a child gets, so that dup2 in the child overwrites no source.
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

/// send(), with file descriptors that come with the first byte.
ssize_t SendSome(int socket, absl::string_view text, absl::Span<const int> fds) {
  iovec data = {const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(PythonChild::kMaxSentFds * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

absl::Status SystemError(absl::string_view what, int error) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PythonChild>> PythonChild::Start(Launcher launch, int memory_fd, std::string name) {
  int sockets[2], output[2], lifeline[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return SystemError("socketpair", errno);
  Fd control(sockets[0]), child_control(sockets[1]);
  if (pipe2(output, O_CLOEXEC) != 0) return SystemError("pipe", errno);
  Fd read_output(output[0]), child_output(output[1]);
  if (pipe2(lifeline, O_CLOEXEC) != 0) return SystemError("pipe", errno);
  Fd child_lifeline(lifeline[0]), hold_lifeline(lifeline[1]);
  Fd memory(memory_fd < 0 ? -1 : fcntl(memory_fd, F_DUPFD_CLOEXEC, 16));
  for (const Fd* fd : {&control, &child_control, &read_output, &child_output, &child_lifeline, &hold_lifeline}) {
    if (fd->get() < 0) return SystemError("no file descriptor is left", EMFILE);
  }
  if (memory_fd >= 0 && memory.get() < 0) return SystemError("no file descriptor is left", EMFILE);
  fcntl(control.get(), F_SETFL, O_NONBLOCK);
  fcntl(read_output.get(), F_SETFL, O_NONBLOCK);
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process,
                          launch({child_output.get(), child_control.get(), memory.get(), child_lifeline.get()}));
  return std::unique_ptr<PythonChild>(new PythonChild(std::move(process), control.Release(), read_output.Release(),
                                                      hold_lifeline.Release(), std::move(name)));
}

PythonChild::PythonChild(std::unique_ptr<ChildProcess> process, int control_fd, int output_fd, int lifeline_fd,
                         std::string name)
    : process_(std::move(process)),
      pid_(process_->pid()),
      control_fd_(control_fd),
      output_fd_(output_fd),
      lifeline_fd_(lifeline_fd),
      name_(std::move(name)) {}

PythonChild::~PythonChild() {
  Kill();
  close(control_fd_);
  close(output_fd_);
  close(lifeline_fd_);
}

absl::Status PythonChild::Send(absl::string_view line, absl::Duration timeout, absl::Span<const int> fds) {
  const absl::Duration deadline = base::Clock::Real().SteadyNow() + timeout;
  const std::string text = absl::StrCat(line, "\n");
  for (size_t sent = 0; sent < text.size();) {
    const absl::string_view rest = absl::string_view(text).substr(sent);
    const ssize_t count = SendSome(control_fd_, rest, sent == 0 ? fds : absl::Span<const int>());
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
  // Several lines may have come at once.
  const bool is_there = received_.find('\n', searched_) != std::string::npos;
  poll(readable, 2, is_there ? 0 : static_cast<int>(absl::ToInt64Milliseconds(wait)));
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
  if (lines_in_period_ > 0 && base::Clock::Real().SteadyNow() - period_begin_ > kLogPeriod) LogPeriod();
  char data[1 << 14];
  // A child that prints without end must not hold us here.
  for (int reads = 0; reads < 64; ++reads) {
    const ssize_t count = read(output_fd_, data, sizeof(data));
    if (count <= 0) return;
    for (const char c : absl::string_view(data, static_cast<size_t>(count))) {
      if (c != '\n') printed_.push_back(c);
      if (c != '\n' && printed_.size() < kMaxPrintedLine) continue;
      TakeLine(printed_);
      printed_.clear();
    }
  }
}

void PythonChild::TakeLine(absl::string_view line) {
  if (line.empty()) return;
  if (last_lines_.size() == kLastLines) last_lines_.erase(last_lines_.begin());
  last_lines_.emplace_back(line.substr(0, 300));
  if (lines_in_period_ == 0) {
    period_begin_ = base::Clock::Real().SteadyNow();
    first_line_ = base::LogSafe(std::string_view(line.data(), line.size()), kMaxShown);
  }
  if (++lines_in_period_ <= kLogLines) {
    TROUPE_DEBUG("{} pid={}: {}", name_, pid_, base::LogSafe(std::string_view(line.data(), line.size()), 1000));
  }
}

void PythonChild::LogPeriod() {
  if (lines_in_period_ == 1) TROUPE_INFO("{} pid={} printed: {}", name_, pid_, first_line_);
  if (lines_in_period_ > 1) {
    TROUPE_INFO("{} pid={} printed {} lines; the first: {}", name_, pid_, lines_in_period_, first_line_);
  }
  lines_in_period_ = 0;
}

std::string PythonChild::LastOutput() const { return absl::StrJoin(last_lines_, " | "); }

bool PythonChild::Ended() {
  if (ended_) return true;
  if (!process_->Ended()) return false;
  KillAndReap();  // what it started and left behind
  return true;
}

void PythonChild::Terminate() {
  if (!Ended()) process_->Signal(SIGTERM);
}

void PythonChild::Kill() {
  if (!Ended()) KillAndReap();
}

void PythonChild::KillAndReap() {
  how_it_ended_ = process_->KillAndReap();
  ended_ = true;
  DrainOutput();
  if (!printed_.empty()) TakeLine(printed_);
  printed_.clear();
  LogPeriod();
}

}  // namespace troupe::envhost
