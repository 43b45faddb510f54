#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace troupe::services {

/// The command line of `troupe serve`. Plain value.
struct PolicyServerFlags {
  std::string run_folder;
  std::string checkpoint = "latest";  ///< latest, best or env steps; read once, at the start
  std::string config_path;            ///< the operator's own: what of the run's Python may be imported; empty: nothing
  int64_t policy_map_capacity = 0;    ///< actors in memory; 0: as many as the run's learner held
  std::vector<std::string> listen;    ///< unix:PATH, unix-abstract:NAME or HOST:PORT
  bool insecure_plaintext_network = false;
  std::optional<uint64_t> seed;                      ///< of sampled actions; drawn when absent
  absl::Duration drain_timeout = absl::Seconds(10);  ///< for the answers to queries it holds
};

/// Serves the policies of a checkpoint until a signal asks to leave (DrainSignals, installed by the caller), then
/// answers what it holds. OK: drained. Else why it could not start, for the person at the command line: errors of
/// storage::CheckpointWeights and of rpc::QueryServer::Start; FAILED_PRECONDITION for a run with Python that
/// config_path does not name.
///
/// The run is data: neither its configuration is read nor its environment made.
///
/// Threads: the caller's waits for the signal; gRPC's answer.
absl::Status RunPolicyServer(const PolicyServerFlags& flags);

}  // namespace troupe::services
