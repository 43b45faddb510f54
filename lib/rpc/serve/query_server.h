#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/rpc/serve/query_service.h"
#include "lib/rpc/serve/reflection_service.h"
#include "lib/rpc/transport/listen.h"
#include "lib/rpc/transport/stream_registry.h"
#include "lib/rpc/transport/transport.h"
#include "lib/serving/action_query.h"

namespace troupe::rpc {

/// A policy server's front door: the service Query, and the reflection that describes it, on gRPC's callback API. Made
/// and owned by services/policy_server, after what it borrows. Starts gRPC's threads, none of its own. Thread-safe.
/// States: serving -> shut down (Shutdown, or the destructor).
class QueryServer {
 public:
  /// Serving when it returns. Borrows `queries`. Errors as StartListening.
  static absl::StatusOr<std::unique_ptr<QueryServer>> Start(const std::vector<std::string>& addresses,
                                                            const TransportSecurity& security,
                                                            serving::ActionQueries* queries,
                                                            const QueryStreamLimits& limits = {});
  ~QueryServer() { Shutdown(absl::ZeroDuration()); }

  /// As given, with the port that port 0 became.
  const std::vector<std::string>& addresses() const { return listening_.addresses(); }
  /// Whether it still answers at its own addresses, see ListeningServer::DialSelf.
  absl::Status DialSelf(absl::Duration timeout) const { return listening_.DialSelf(timeout); }
  size_t num_streams() const { return registry_.size(); }
  /// Ends streams that have been without a request for too long. Now and then.
  void Tick() { registry_.CheckProgress(base::Clock::Real().SteadyNow()); }
  /// Takes no new calls, answers those it holds, and cancels after `timeout` who has not read its answer. Blocks until
  /// then. Idempotent; one thread at a time.
  void Shutdown(absl::Duration timeout);

 private:
  QueryServer(serving::ActionQueries* queries, const QueryStreamLimits& limits)
      : service_(queries, &peers_, &registry_, &base::Clock::Real(), limits),
        reflection_(service_.streams(), &peers_) {}

  PeerBook peers_;
  StreamRegistry registry_;
  QueryService service_;
  ReflectionService reflection_;
  ListeningServer listening_;  ///< last, so that it is gone before what it calls
};

}  // namespace troupe::rpc
