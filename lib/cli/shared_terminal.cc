#include "lib/cli/shared_terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/terminal_block.h"

namespace troupe::cli {
namespace {

constexpr absl::Duration kMostWait = absl::Milliseconds(250);

}  // namespace

SharedTerminal::~SharedTerminal() {
  Restore();
  PrintRest();
  for (const int fd : fds_) {
    if (fd >= 0) close(fd);
  }
}

absl::Status SharedTerminal::Open() {
  if (pipe2(fds_, O_CLOEXEC) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot make a pipe for what is said: ", std::strerror(errno)));
}

void SharedTerminal::Divert() {
  if (!is_open() || kept_[0] >= 0) return;
  std::fflush(stdout);
  kept_[0] = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  kept_[1] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (kept_[0] < 0 || kept_[1] < 0) return Restore();  // what is said is seen all the same
  dup2(fds_[1], STDOUT_FILENO);
  dup2(fds_[1], STDERR_FILENO);
}

void SharedTerminal::Restore() {
  std::fflush(stdout);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    int& kept = kept_[fd - STDOUT_FILENO];
    if (kept < 0) continue;
    dup2(kept, fd);
    close(kept);
    kept = -1;
  }
}

void SharedTerminal::TakeOver() {
  if (is_open()) base::TakeTerminal(fds_[1], kMostWait);
  Restore();
}

void SharedTerminal::PrintRest() const {
  if (!is_open()) return;
  // The flag is of the pipe's end, which the learner had as well.
  const int flags = fcntl(fds_[0], F_GETFL);
  if (flags < 0 || fcntl(fds_[0], F_SETFL, flags | O_NONBLOCK) != 0) return;
  char bytes[4096];
  for (;;) {
    const ssize_t got = read(fds_[0], bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    std::fwrite(bytes, 1, static_cast<size_t>(got), stderr);
  }
}

}  // namespace troupe::cli
