#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/rpc/door/connection_acceptor.h"
#include "lib/rpc/door/connection_relay.h"
#include "lib/rpc/door/door_counts.h"
#include "lib/rpc/door/peer_book.h"
#include "lib/rpc/transport/transport.h"
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

namespace troupe::rpc {

/// Who may come to a server beyond what its addresses say.
struct ListenOptions {
  TransportSecurity security;
  /// Unix sockets: only the user that this process runs as, and root. Always so at abstract sockets, which no file's
  /// permissions protect.
  bool same_user_only = false;
  /// Learns who is behind TCP connections; outlives the server. nullptr: nobody else asks.
  PeerBook* peers = nullptr;
  /// Counts what is closed and refused; outlives the server. nullptr: nobody asks.
  DoorCounts* counts = nullptr;
  /// Calls that may be open before they have asked or been answered, where that is more than FrameLimits has.
  int64_t max_calls = 0;
};

class GrpcSide;

/// A server that listens. Its connections are accepted by a thread of ours, which also passes on
/// the bytes of those over TCP (ConnectionRelay), and served by gRPC's. Destroying it shuts it
/// down.
class ListeningServer {
 public:
  ListeningServer();
  ~ListeningServer();
  ListeningServer(ListeningServer&& other) noexcept;
  ListeningServer& operator=(ListeningServer&& other) noexcept;

  /// As given, with the port that port 0 became.
  const std::vector<std::string>& addresses() const { return addresses_; }
  bool serving() const { return server_ != nullptr; }
  /// OK if each of its addresses still answers, see rpc::DialSelf. RESOURCE_EXHAUSTED as well where newcomers are
  /// turned away for want of descriptors, or where others were answered and the dial waited behind them. One thread at
  /// a time, not after Shutdown. Blocks at most `timeout` for each.
  absl::Status DialSelf(absl::Duration timeout) const;
  /// Takes no new connections and calls, waits for those it holds for `grace`, then cancels them. Blocks until every
  /// call is done. Idempotent; one thread at a time.
  void Shutdown(absl::Duration grace);

 private:
  friend absl::StatusOr<ListeningServer> StartListening(grpc::ServerBuilder& builder,
                                                        const std::vector<std::string>& addresses,
                                                        const ListenOptions& options);
  std::vector<std::string> addresses_;
  std::unique_ptr<PeerBook> own_peers_;
  std::unique_ptr<DoorCounts> own_counts_;
  PeerBook* peers_ = nullptr;
  std::shared_ptr<GrpcSide> grpc_side_;
  std::unique_ptr<grpc::Server> server_;
  // Behind what they use.
  std::unique_ptr<ConnectionRelay> relay_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

/// Starts `builder`, whose services are registered, at `addresses` with the settings that every server has.
/// ALREADY_EXISTS: an address is in use; FAILED_PRECONDITION: plain text on the network without its flag;
/// INVALID_ARGUMENT, PERMISSION_DENIED: no such address here, or none; RESOURCE_EXHAUSTED: no file descriptor is left.
absl::StatusOr<ListeningServer> StartListening(grpc::ServerBuilder& builder, const std::vector<std::string>& addresses,
                                               const ListenOptions& options);

}  // namespace troupe::rpc
