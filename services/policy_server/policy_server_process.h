#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/env/registry.h"

namespace troupe::services {

/// The command line of `troupe serve`. Plain value.
struct PolicyServerFlags {
  std::string run_folder;
  std::string checkpoint = "latest";  ///< latest, best or env steps; read once, at the start
  std::vector<std::string> listen;    ///< unix:PATH, unix-abstract:NAME or HOST:PORT
  bool insecure_plaintext_network = false;
  std::optional<uint64_t> seed;                      ///< of sampled actions; drawn when absent
  absl::Duration drain_timeout = absl::Seconds(10);  ///< for the answers to queries it holds
};

/// Serves the policies of a checkpoint until a signal asks to leave (DrainSignals, installed by the caller), then
/// answers what it holds. OK: drained. Else why it could not start, for the person at the command line: errors of
/// LoadRunPolicies and of rpc::QueryServer::Start.
///
/// Threads: the caller's waits for the signal; gRPC's answer.
absl::Status RunPolicyServer(const PolicyServerFlags& flags, const env::EnvRegistry& registry);

}  // namespace troupe::services
