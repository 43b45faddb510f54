#include "lib/run/life_report.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace troupe::run {

absl::StatusOr<LifeReport> LifeReport::Adopt(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode) || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--report-fd: descriptor ", fd, " is no pipe"));
  }
  return LifeReport(fd);
}

LifeReport::~LifeReport() {
  if (fd_ >= 0) close(fd_);
}

void LifeReport::Fruitful() const {
  // One write of less than PIPE_BUF: whole among the lines of other workers.
  const std::string line = absl::StrCat(getpid(), "\n");
  if (write(fd_, line.data(), line.size()) < 0) TROUPE_DEBUG("report not written error=\"{}\"", std::strerror(errno));
}

}  // namespace troupe::run
