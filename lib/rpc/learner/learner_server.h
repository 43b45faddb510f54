#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/rpc/door/door_counts.h"
#include "lib/rpc/transport/transport.h"
#include "lib/rpc/worker/learner_endpoint.h"
#include "lib/rpc/worker/weight_bus.h"
#include "lib/sample/batch_schema.h"
#include "lib/serving/action_query.h"

namespace troupe::rpc {

struct LearnerServerOptions {
  std::vector<std::string> addresses;  ///< unix:PATH, unix-abstract:NAME, HOST:PORT (port 0: any)
  TransportSecurity security;
  sample::BatchSchema schema;
  sample::BatchLimits limits;
  std::string config_yaml;  ///< for Welcome
  /// Payload a worker may have sent without an ack: some fragments on the way, so that it need not wait for each.
  int64_t credit_bytes = 16 << 20;
  int64_t pool_idle_bytes = 256 << 20;        ///< buffers kept for fragments to come
  DoorCounts* counts = nullptr;               ///< of its door; outlives the server; nullptr: nobody asks
  serving::ActionQueries* queries = nullptr;  ///< answers Query, outlives the server; nullptr: nobody does
};

/// The learner's front door: the services Rollout, Weights, Monitor and Query, and gRPC's own health service, on
/// gRPC's callback API. Nothing here changes the run; ControlServer has what does.
///
/// Made and owned by services/learner, after what it borrows. Starts gRPC's threads, none of its own: Tick is called by
/// a loop of the owner's. Thread-safe. States: serving -> shut down (Shutdown, or the destructor).
class LearnerServer {
 public:
  /// Serving when it returns. Borrows endpoint, monitor and clock, which outlive it. ALREADY_EXISTS: an address is in
  /// use; FAILED_PRECONDITION: plain text on the network without its flag; INVALID_ARGUMENT, PERMISSION_DENIED: no such
  /// address here.
  static absl::StatusOr<std::unique_ptr<LearnerServer>> Start(LearnerServerOptions options, LearnerEndpoint* endpoint,
                                                              MonitorHandler* monitor, base::Clock* clock);
  virtual ~LearnerServer() = default;

  /// Where to Publish.
  virtual WeightBus& weights() = 0;
  /// As given, with the port that port 0 became.
  virtual std::vector<std::string> addresses() const = 0;
  /// Ends streams that make no progress. Call about once a second.
  virtual void Tick() = 0;
  /// Of workers and of whoever follows the weights.
  virtual int64_t num_streams() const = 0;
  /// Of workers alone, by which they hand in samples. Nobody waits for a follower's goodbye.
  virtual int64_t num_rollout_streams() const = 0;
  /// Whether it still answers at its own addresses, see ListeningServer::DialSelf.
  virtual absl::Status DialSelf(absl::Duration timeout) const = 0;
  /// Ends every stream (UNAVAILABLE: workers come back, to the next learner), then the server. Blocks at most `timeout`
  /// and a second.
  virtual void Shutdown(absl::Duration timeout) = 0;
};

}  // namespace troupe::rpc
