#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::cli {

/// The pipe on which local workers say that their life was fruitful: that the learner accepted a fragment of theirs.
/// One for all workers, since a descriptor each would be too many; a report is the worker's process id on a line. What
/// a worker writes is believed: it can only spare itself the end of its own run.
///
/// Made and used by Supervisor's thread. Never blocks. Capacity: a pipe's (64 KiB), a report is lost when it is full.
class LifeReports {
 public:
  LifeReports() = default;
  ~LifeReports();
  LifeReports(const LifeReports&) = delete;
  LifeReports& operator=(const LifeReports&) = delete;

  /// INTERNAL when there is no pipe to be had.
  absl::Status Open();
  /// What a worker inherits and writes to (`troupe worker --report-fd`).
  int worker_fd() const { return fds_[1]; }
  /// The workers that have reported since the last call. Reports written before a worker's death are there after it.
  std::vector<pid_t> Take();

 private:
  int fds_[2] = {-1, -1};
  std::string unfinished_;  ///< a line that has not ended yet
};

}  // namespace troupe::cli
