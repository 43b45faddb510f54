#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/env/registry.h"
#include "lib/rpc/transport/transport.h"

namespace troupe::services {

/// The command line of `troupe worker`. Plain value.
struct WorkerFlags {
  std::string learner;  ///< unix:PATH, unix-abstract:NAME or HOST:PORT
  /// What it permits besides what is native: what this configuration file (empty: none) with these overrides names, and
  /// these names of Python.
  std::string config;
  std::vector<std::string> overrides;
  std::vector<std::string> allow_python;
  std::vector<std::string> allow_torchscript;  ///< and these TorchScript files
  rpc::TransportSecurity security;
  absl::Duration connect_timeout = absl::Seconds(30);   ///< for the first welcome
  absl::Duration reconnect_timeout = absl::Minutes(5);  ///< a learner that is away for longer is gone for good
  absl::Duration drain_timeout = absl::Seconds(10);     ///< for the last acknowledgements
  std::optional<int> report_fd;                         ///< a pipe that hears of the first accepted fragment
};

/// Samples for the learner at `flags.learner` until it drains, is gone for good, or a signal asks to leave
/// (DrainSignals, installed by the caller). What to sample it hears from the learner, and runs of that what is native
/// or permitted (config::Permits). OK: drained. Else why not, for the person at the command line: UNAVAILABLE no
/// learner, FAILED_PRECONDITION it does not want this worker (or this worker's build understands another
/// configuration), PERMISSION_DENIED (exit code kRefused) the learner asks for what is not permitted; nothing of it was
/// run.
///
/// Threads: the caller's steps environments; one keeps the connection; one watches for signals; gRPC has its own.
/// After a signal it ends within 2 s, and with environments that are no native ones within the step in progress, at
/// most 10 s, whatever the learner does: what that has not acknowledged by then is lost. While the learner is away it
/// ends at once, for there is nobody to hand in to. Ends the process itself where neither would do.
absl::Status RunWorker(const WorkerFlags& flags, const env::EnvRegistry& registry);

}  // namespace troupe::services
