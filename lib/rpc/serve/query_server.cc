#include "lib/rpc/serve/query_server.h"

#include "lib/base/await.h"
#include "lib/base/status_macros.h"

namespace troupe::rpc {

absl::StatusOr<std::unique_ptr<QueryServer>> QueryServer::Start(const std::vector<std::string>& addresses,
                                                                const TransportSecurity& security,
                                                                serving::ActionQueries* queries,
                                                                const QueryStreamLimits& limits) {
  auto server = std::unique_ptr<QueryServer>(new QueryServer(queries, limits));
  grpc::ServerBuilder builder;
  builder.RegisterService(&server->service_);
  server->reflection_.Register(builder);
  ListenOptions listen{.security = security, .peers = &server->peers_};
  // A user who asks for more streams than that expects them all to come at once.
  if (limits.open > kMaxQueryStreams) listen.max_calls = limits.open;
  TROUPE_ASSIGN_OR_RETURN(server->listening_, StartListening(builder, addresses, listen));
  return server;
}

void QueryServer::Shutdown(absl::Duration timeout) {
  if (!listening_.serving()) return;
  // Streams that come now are ended at once, and the port waits for what it holds: streams and calls alike.
  registry_.EndAll(absl::UnavailableError("the server is going down"));
  listening_.Shutdown(timeout);
}

}  // namespace troupe::rpc
