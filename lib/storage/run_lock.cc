#include "lib/storage/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"

namespace troupe::storage {

absl::StatusOr<std::unique_ptr<RunLock>> RunLock::Take(const std::string& run) {
  const std::string path = run + "/lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::Status(absl::ErrnoToStatusCode(errno),
                        absl::StrCat("run folder is not writable: ", std::strerror(errno)));
  }
  std::unique_ptr<RunLock> lock(new RunLock(fd));
  struct stat held, there;
  const bool taken = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  // Between open and flock the folder may have been moved away: then this is the lock of another run.
  if (taken && ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
      held.st_ino == there.st_ino) {
    return lock;
  }
  return base::WithExitCode(absl::FailedPreconditionError("run folder is in use by another learner"),
                            base::ExitCode::kFailed);
}

bool RunLock::IsHeld(const std::string& run) {
  struct stat lock {};
  if (::stat((run + "/lock").c_str(), &lock) != 0) return false;
  const std::string place = absl::StrCat(":", lock.st_ino, " ");
  std::ifstream locks("/proc/locks");  // "1: FLOCK  ADVISORY  WRITE 4711 08:01:123 0 EOF"
  for (std::string line; std::getline(locks, line);) {
    if (absl::StrContains(line, " FLOCK ") && absl::StrContains(line, place)) return true;
  }
  return false;
}

RunLock::~RunLock() { ::close(fd_); }

}  // namespace troupe::storage
