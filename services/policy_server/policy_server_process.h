#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/rpc/serve/query_stream.h"
#include "lib/rpc/transport/transport.h"
#include "lib/run/checkpoint_engine.h"

namespace troupe::services {

/// The command line of `troupe serve`. Plain value.
struct PolicyServerFlags {
  run::AskedCheckpoint asked;
  std::string from;  ///< a learner to follow in the place of a checkpoint, as it was named; empty: none
  /// Of `from`: the learner's address by now. A run's learner that comes back has another one.
  std::function<absl::StatusOr<std::string>()> find_learner;
  std::vector<std::string> listen;  ///< unix:PATH, unix-abstract:NAME or HOST:PORT
  rpc::TransportSecurity security;
  rpc::QueryStreamLimits streams;
  absl::Duration reload_interval = absl::Seconds(1);  ///< between looks for newer checkpoints; 0: none
  absl::Duration drain_timeout = absl::Seconds(10);   ///< for the answers to queries it holds
};

/// Serves the policies of a checkpoint, or those of a learner while it trains and after, until a signal asks to leave
/// (DrainSignals, installed by the caller), then answers what it holds. OK: drained. Else why it could not start, for
/// the person at the command line: errors of run::CheckpointEngine::Open, of rpc::WeightFollower::Follow before the
/// first weights, and of rpc::QueryServer::Start.
///
/// Threads: the caller's waits for the signal; one dials its own port (run::Watchdog); one looks for newer checkpoints
/// or follows the learner; gRPC's answer.
absl::Status RunPolicyServer(const PolicyServerFlags& flags);

}  // namespace troupe::services
