#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace troupe::storage {

/// Keeps a run folder to one learner: an exclusive lock of the file `lock` in it, which the kernel drops with the
/// process. Made by who changes the folder, held as long as it may; moves with the folder when that is renamed.
class RunLock final {
 public:
  /// Does not wait. PERMISSION_DENIED: the folder is not writable; RESOURCE_EXHAUSTED: not now, as of a full disk;
  /// FAILED_PRECONDITION, with ExitCode::kFailed, since that one may end: another learner holds it.
  static absl::StatusOr<std::unique_ptr<RunLock>> Take(const std::string& run);
  /// True if a process that can be seen from here has it. Asked of the kernel, since to try would be to hold it.
  static bool IsHeld(const std::string& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace troupe::storage
