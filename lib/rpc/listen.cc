#include "lib/rpc/listen.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/rpc/address.h"
#include "lib/rpc/limits.h"

namespace troupe::rpc {
namespace {

using ExternalAcceptor = grpc::experimental::ExternalConnectionAcceptor;

/// What gRPC sets on the sockets that it accepts itself.
void ApplySocketSettings(int fd, const Peer& peer) {
  if (peer.unix_socket) return;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto timeout_ms = static_cast<unsigned>(absl::ToInt64Milliseconds(kKeepaliveTimeout));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

void HandOver(ExternalAcceptor& server, Descriptor socket, const Peer& peer) {
  ApplySocketSettings(socket.fd(), peer);
  ExternalAcceptor::NewConnectionParameters connection;
  connection.fd = socket.Release();
  server.HandleNewConnection(&connection);
}

bool SameUser(const Peer& peer) { return peer.uid == 0 || peer.uid == static_cast<int64_t>(geteuid()); }

/// Sockets without a file, and those that ask for it, know who may come.
bool Admits(const Address& listener, const Peer& peer, bool same_user_only) {
  if (!peer.unix_socket) return true;
  return SameUser(peer) || (listener.kind != Address::Kind::kAbstract && !same_user_only);
}

}  // namespace

absl::StatusOr<ListeningServer> StartListening(grpc::ServerBuilder& builder, const std::vector<std::string>& addresses,
                                               const ListenOptions& options) {
  if (addresses.empty()) return absl::InvalidArgumentError("no address to listen at");
  ApplyServerSettings(builder);
  ListeningServer listening;
  std::vector<ListeningSockets> sockets;
  std::shared_ptr<grpc::ServerCredentials> credentials;
  for (const std::string& text : addresses) {
    TROUPE_ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
    TROUPE_ASSIGN_OR_RETURN(credentials, MakeServerCredentials(address, options.security));
    TROUPE_ASSIGN_OR_RETURN(ListeningSockets opened, ListeningSockets::Open(address));
    listening.addresses_.push_back(opened.address().text);
    sockets.push_back(std::move(opened));
  }
  std::shared_ptr<ExternalAcceptor> grpc_side = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  AcceptorHooks hooks;
  hooks.admit = [same_user_only = options.same_user_only](const Address& listener, const Peer& peer) {
    return Admits(listener, peer, same_user_only);
  };
  hooks.hand_over = [grpc_side](Descriptor socket, const Peer& peer) { HandOver(*grpc_side, std::move(socket), peer); };
  TROUPE_ASSIGN_OR_RETURN(listening.acceptor_, ConnectionAcceptor::Create(std::move(sockets), std::move(hooks)));
  listening.server_ = builder.BuildAndStart();
  if (listening.server_ == nullptr) return absl::UnavailableError("cannot start the server");
  listening.acceptor_->Start();
  return listening;
}

void ListeningServer::Shutdown(std::chrono::system_clock::time_point deadline) {
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (server_ == nullptr) return;
  server_->Shutdown(deadline);
  server_->Wait();
  server_.reset();
}

}  // namespace troupe::rpc
