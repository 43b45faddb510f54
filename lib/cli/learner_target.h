#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/rpc/control/control_client.h"
#include "lib/rpc/control/monitor_client.h"

namespace troupe::cli {

/// A learner that a person names on a command line.
struct LearnerTarget {
  std::string address;  ///< to connect to; empty: it listens nowhere
  std::string folder;   ///< the run's; empty where an address was given
  std::string control;  ///< path of the run's control socket, wherever its learner is; empty: nobody trains the run now
  std::string host;     ///< what the learner's machine or container calls itself; empty where an address was given

  /// Whether the run's learner was started somewhere else, as far as names tell.
  bool elsewhere() const;
};

/// An address (unix:PATH or HOST:PORT) as it is; a run folder, or a run's name inside `directory`: what its learner
/// wrote down. NOT_FOUND when it is neither.
absl::StatusOr<LearnerTarget> FindLearner(const std::string& target, const std::string& directory);

/// Whether a learner answers at the run's control socket, this user's or another's. Connects to it.
bool IsTrained(const LearnerTarget& target);

/// Where the target's learner may be asked from here. UNAVAILABLE when nobody trains the run, or only somewhere else.
absl::StatusOr<std::string> ReachableAddress(const LearnerTarget& target);

/// Who looks at the learner: at the run's control socket, where this user may open it and it answers, else at its
/// address. UNAVAILABLE when nobody trains the run, or only somewhere else.
absl::StatusOr<std::unique_ptr<rpc::MonitorClient>> OpenMonitor(const LearnerTarget& target,
                                                                const rpc::TransportSecurity& security);

/// Who changes the learner: at the run's control socket. UNAVAILABLE when nobody trains the run; FAILED_PRECONDITION or
/// PERMISSION_DENIED where there is no way from here, with the lines that help: `command` ("policy freeze") said where
/// the learner is.
absl::StatusOr<std::unique_ptr<rpc::ControlClient>> OpenControl(const LearnerTarget& target,
                                                                const std::string& command);

/// Those lines. `host`: where the learner is, "" if nobody knows; `run`: as its folder or name is given there.
std::string SayItThere(const std::string& host, const std::string& command, const std::string& run);

}  // namespace troupe::cli
