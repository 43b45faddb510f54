#pragma once

#include <cstdint>
#include <deque>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/envhost/host_options.h"

namespace troupe::envhost {

/// How often processes may be restarted: HostOptions::max_restarts times within restart_window. Not thread-safe.
class RestartBudget {
 public:
  explicit RestartBudget(const HostOptions& options)
      : max_restarts_(options.max_restarts), window_(options.restart_window) {}

  /// Takes one for a process that ended with `death`. RESOURCE_EXHAUSTED, with that cause: there is none left.
  absl::Status Spend(const absl::Status& death);

 private:
  const int64_t max_restarts_;
  const absl::Duration window_;
  std::deque<absl::Duration> restarts_;  ///< when, within the window
};

}  // namespace troupe::envhost
