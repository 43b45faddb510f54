#include "lib/rpc/episode/episode_server.h"

#include "lib/base/status_macros.h"

namespace troupe::rpc {

absl::StatusOr<std::unique_ptr<EpisodeServer>> EpisodeServer::Start(const std::string& address,
                                                                    const TransportSecurity& security,
                                                                    outside::EpisodeBook* book) {
  auto server = std::unique_ptr<EpisodeServer>(new EpisodeServer(book));
  grpc::ServerBuilder builder;
  builder.RegisterService(&server->service_);
  TROUPE_ASSIGN_OR_RETURN(
      server->listening_,
      StartListening(builder, {address}, {.security = security, .same_user_only = true, .peers = &server->peers_}));
  return server;
}

void EpisodeServer::Shutdown(absl::Duration timeout) {
  if (!listening_.serving()) return;
  book_->Close();
  listening_.Shutdown(timeout);
}

}  // namespace troupe::rpc
