#include "lib/rpc/control/control_server.h"

#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/grpc_deadline.h"
#include "lib/rpc/transport/transport.h"
#include <grpcpp/server_builder.h>

namespace troupe::rpc {
namespace {

using ExternalAcceptor = grpc::experimental::ExternalConnectionAcceptor;

constexpr absl::Duration kShutdownGrace = absl::Milliseconds(500);

/// The log tells of the first one who is turned away; a stranger shall not fill it.
AcceptorHooks HooksOf(std::shared_ptr<ExternalAcceptor> grpc_side, uid_t learner) {
  AcceptorHooks hooks;
  hooks.admit = [learner, told = false](const Address& address, const Peer& peer) mutable {
    if (MayControl(peer.uid, learner)) return true;
    if (!std::exchange(told, true)) TROUPE_WARN("turned away at {} peer=\"{}\"", address.text, peer.ToString());
    return false;
  };
  hooks.hand_over = [grpc_side](Descriptor socket, const Peer&) {
    ExternalAcceptor::NewConnectionParameters connection;
    connection.fd = socket.Release();
    grpc_side->HandleNewConnection(&connection);
  };
  return hooks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const std::string& run_folder,
                                                                    ControlHandler* control, MonitorHandler* monitor,
                                                                    uid_t learner) {
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<ControlSocket> socket, ControlSocket::Listen(run_folder, RuntimeDirectory()));
  std::unique_ptr<ControlServer> server(new ControlServer(std::move(socket), control, monitor));
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder);
  builder.RegisterService(&server->control_service_);
  builder.RegisterService(&server->monitor_service_);
  std::shared_ptr<ExternalAcceptor> grpc_side = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  std::vector<ListeningSockets> sockets;
  sockets.push_back(server->socket_->TakeSockets());
  TROUPE_ASSIGN_OR_RETURN(server->acceptor_,
                          ConnectionAcceptor::Create(std::move(sockets), HooksOf(std::move(grpc_side), learner)));
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return absl::UnavailableError("cannot start the server of the control socket");
  server->acceptor_->Start();
  return server;
}

void ControlServer::Shutdown() {
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (server_ == nullptr) return;
  server_->Shutdown(GrpcDeadline(kShutdownGrace));
  server_->Wait();
  server_.reset();
}

}  // namespace troupe::rpc
