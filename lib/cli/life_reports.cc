#include "lib/cli/life_reports.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace troupe::cli {
namespace {

// Longer than any process id: what does not end a line by then is no report.
constexpr size_t kMaxReportBytes = 32;

}  // namespace

LifeReports::~LifeReports() {
  for (const int fd : fds_) {
    if (fd >= 0) close(fd);
  }
}

absl::Status LifeReports::Open() {
  if (pipe2(fds_, O_CLOEXEC | O_NONBLOCK) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot make a pipe for workers' reports: ", std::strerror(errno)));
}

std::vector<pid_t> LifeReports::Take() {
  std::vector<pid_t> pids;
  char bytes[4096];
  for (;;) {
    const ssize_t got = read(fds_[0], bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return pids;
    for (ssize_t i = 0; i < got; ++i) {
      if (bytes[i] != '\n') {
        if (unfinished_.size() < kMaxReportBytes) unfinished_ += bytes[i];
        continue;
      }
      pid_t pid = 0;
      if (absl::SimpleAtoi(unfinished_, &pid)) pids.push_back(pid);
      unfinished_.clear();
    }
  }
}

}  // namespace troupe::cli
