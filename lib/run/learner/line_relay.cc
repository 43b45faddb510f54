#include "lib/run/learner/line_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "lib/base/terminal_block.h"

namespace troupe::run {
namespace {

/// It bounds how long the end of the relay is waited for, and a line that does not end.
constexpr int kWaitMs = 50;

}  // namespace

absl::StatusOr<std::unique_ptr<LineRelay>> LineRelay::Adopt(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode) || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--line-fd: descriptor ", fd, " is no pipe"));
  }
  base::TerminalBlock::OfProcess().ShareThrough(fd);
  return std::unique_ptr<LineRelay>(new LineRelay(fd));
}

LineRelay::~LineRelay() {
  Print(/*all=*/true);
  base::TerminalBlock::OfProcess().ShareThrough(std::nullopt);
  close(fd_);
}

absl::Duration LineRelay::Step() {
  pollfd readable = {fd_, POLLIN, 0};
  const int ready = poll(&readable, 1, kWaitMs);
  if (ready <= 0) {  // nothing, or a signal
    if (ready == 0) Print(/*all=*/true);
    return absl::ZeroDuration();
  }
  char bytes[4096];
  const ssize_t got = read(fd_, bytes, sizeof(bytes));
  if (got < 0) return errno == EINTR || errno == EAGAIN ? absl::ZeroDuration() : absl::InfiniteDuration();
  waiting_.append(bytes, static_cast<size_t>(got));
  Print(/*all=*/got == 0 || waiting_.size() >= kMostBytes);
  return got == 0 ? absl::InfiniteDuration() : absl::ZeroDuration();
}

void LineRelay::Print(bool all) {
  if (all && !waiting_.empty() && waiting_.back() != '\n') waiting_.push_back('\n');
  const size_t end = waiting_.rfind('\n');
  if (end == std::string::npos) return;
  base::TerminalBlock::OfProcess().WriteAbove(std::string_view(waiting_).substr(0, end + 1));
  waiting_.erase(0, end + 1);
}

}  // namespace troupe::run
