#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/rpc/listen.h"
#include "lib/rpc/query_service.h"
#include "lib/rpc/transport.h"
#include "lib/serving/action_query.h"

namespace troupe::rpc {

/// A policy server's front door: the service Query alone, on gRPC's callback API. Made and owned by
/// services/policy_server, after what it borrows. Starts gRPC's threads, none of its own. Thread-safe. States: serving
/// -> shut down (Shutdown, or the destructor).
class QueryServer {
 public:
  /// Serving when it returns. Borrows `queries`. Errors as StartListening.
  static absl::StatusOr<std::unique_ptr<QueryServer>> Start(const std::vector<std::string>& addresses,
                                                            const TransportSecurity& security,
                                                            serving::ActionQueries* queries);
  ~QueryServer() { Shutdown(absl::ZeroDuration()); }

  /// As given, with the port that port 0 became.
  const std::vector<std::string>& addresses() const { return listening_.addresses(); }
  /// Whether it still answers at its own addresses, see ListeningServer::DialSelf.
  absl::Status DialSelf(absl::Duration timeout) const { return listening_.DialSelf(timeout); }
  /// Takes no new calls, answers those it holds, and cancels after `timeout` who has not read its answer. Blocks until
  /// then. Idempotent; one thread at a time.
  void Shutdown(absl::Duration timeout);

 private:
  explicit QueryServer(serving::ActionQueries* queries) : service_(queries, &peers_) {}

  PeerBook peers_;
  QueryService service_;
  ListeningServer listening_;  ///< last, so that it is gone before what it calls
};

}  // namespace troupe::rpc
