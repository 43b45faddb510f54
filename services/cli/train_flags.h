#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::services {

/// What `troupe train` is asked for. Plain value.
struct TrainFlags {
  std::string config;
  std::vector<std::string> overrides;
  int workers = -1;
  std::string name;
  std::string directory;  ///< empty: as configured
  std::string python;     ///< env.python.interpreter; empty: as configured
  std::string resume;
  bool resume_or_start = false;
  std::string start_over;
  std::string warm_start;
  std::vector<std::string> allow_python;
  std::string log_level = "info";
  bool json = false;
  bool says_next = true;  ///< ends with the commands that may come next
};

/// Trains a run with a learner and local workers, and blocks until all have ended: the exit code (Supervisor::Run).
/// What it is asked for that cannot be is an error before anything is started. Call from the main thread.
absl::StatusOr<int> Train(const TrainFlags& flags);

}  // namespace troupe::services
