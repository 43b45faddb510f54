#include "lib/rpc/transport/listen.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/door/descriptor.h"
#include "lib/rpc/door/self_dial.h"
#include "lib/rpc/transport/grpc_deadline.h"
#include "lib/rpc/transport/limits.h"
#include <grpcpp/health_check_service_interface.h>

namespace troupe::rpc {
namespace {

// For what gRPC has written at its end to reach clients.
constexpr absl::Duration kLastBytesTimeout = absl::Seconds(1);

using ExternalAcceptor = grpc::experimental::ExternalConnectionAcceptor;

/// What gRPC sets on the sockets that it accepts itself.
void ApplySocketSettings(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto timeout_ms = static_cast<unsigned>(absl::ToInt64Milliseconds(kKeepaliveTimeout));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

/// How many descriptors this process may have open, after it has asked for as many as it can use.
int64_t RaiseMaxDescriptors() {
  constexpr rlim_t kEnough = kReservedDescriptors + kMaxConnections * kDescriptorsPerConnection;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur < kEnough) {
    const rlimit raised = {.rlim_cur = std::min(limit.rlim_max, kEnough), .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<int64_t>(std::min(limit.rlim_cur, kEnough));
}

bool SameUser(const Peer& peer) { return peer.uid == 0 || peer.uid == static_cast<int64_t>(geteuid()); }

/// Sockets without a file, and those that ask for it, know who may come.
bool Admits(const Address& listener, const Peer& peer, bool same_user_only) {
  if (!peer.unix_socket) return true;
  return SameUser(peer) || (listener.kind != Address::Kind::kAbstract && !same_user_only);
}

}  // namespace

/// gRPC's side of connections. While it shuts down it would neither serve nor close what it is given, so what comes
/// from then on is closed here.
class GrpcSide {
 public:
  explicit GrpcSide(std::shared_ptr<ExternalAcceptor> acceptor) : acceptor_(std::move(acceptor)) {}

  void HandOver(Descriptor socket) ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(&mutex_);
    if (closed_) return;
    ExternalAcceptor::NewConnectionParameters connection;
    connection.fd = socket.Release();
    acceptor_->HandleNewConnection(&connection);
  }

  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  const std::shared_ptr<ExternalAcceptor> acceptor_;
  base::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

ListeningServer::ListeningServer() = default;
ListeningServer::~ListeningServer() { Shutdown(absl::ZeroDuration()); }
ListeningServer::ListeningServer(ListeningServer&& other) noexcept = default;
ListeningServer& ListeningServer::operator=(ListeningServer&& other) noexcept = default;

absl::StatusOr<ListeningServer> StartListening(grpc::ServerBuilder& builder, const std::vector<std::string>& addresses,
                                               const ListenOptions& options) {
  if (addresses.empty()) return absl::InvalidArgumentError("no address to listen at");
  ApplyServerSettings(builder);
  // Of the whole process, for the servers that it builds from now on.
  grpc::EnableDefaultHealthCheckService(true);
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
  const auto grpc_side = std::make_shared<GrpcSide>(builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials));
  listening.grpc_side_ = grpc_side;
  listening.own_peers_ = std::make_unique<PeerBook>();
  listening.peers_ = options.peers == nullptr ? listening.own_peers_.get() : options.peers;
  listening.own_counts_ = std::make_unique<DoorCounts>();
  RelayOptions relaying;
  relaying.admission = AdmissionLimitsFor(RaiseMaxDescriptors());
  relaying.frames.max_message_bytes = kMaxMessageBytes;
  for (int64_t* most : {&relaying.frames.max_silent_calls, &relaying.frames.max_unserved_calls}) {
    *most = std::max(*most, options.max_calls);
  }
  relaying.first_call_timeout = kHandshakeTimeout;
  relaying.clock = &base::Clock::Real();
  relaying.peers = listening.peers_;
  relaying.counts = options.counts == nullptr ? listening.own_counts_.get() : options.counts;
  relaying.hand_over = [grpc_side](Descriptor socket) { grpc_side->HandOver(std::move(socket)); };
  const bool over_tcp = std::any_of(sockets.begin(), sockets.end(), [](const ListeningSockets& opened) {
    return opened.address().kind == Address::Kind::kTcp;
  });
  if (over_tcp) {
    TROUPE_INFO("places for {} connections over TCP, {} of one address (ulimit -Hn)", relaying.admission.total,
                relaying.admission.per_host);
  }
  TROUPE_ASSIGN_OR_RETURN(listening.relay_, ConnectionRelay::Create(std::move(relaying)));
  AcceptorHooks hooks;
  hooks.wants = [relay = listening.relay_.get()](const Address& listener) {
    return listener.kind != Address::Kind::kTcp || relay->wants_newcomers();
  };
  hooks.admit = [same_user_only = options.same_user_only](const Address& listener, const Peer& peer) {
    return Admits(listener, peer, same_user_only);
  };
  hooks.hand_over = [grpc_side, relay = listening.relay_.get()](Descriptor socket, const Peer& peer) {
    if (peer.unix_socket) return grpc_side->HandOver(std::move(socket));
    ApplySocketSettings(socket.fd());
    relay->Accept(std::move(socket), peer);
  };
  hooks.also_fd = listening.relay_->poll_fd();
  hooks.also_step = [relay = listening.relay_.get()] { relay->Step(); };
  hooks.until_also_step = [relay = listening.relay_.get()] { return relay->UntilNextStep(); };
  TROUPE_ASSIGN_OR_RETURN(listening.acceptor_, ConnectionAcceptor::Create(std::move(sockets), std::move(hooks)));
  listening.server_ = builder.BuildAndStart();
  if (listening.server_ == nullptr) return absl::UnavailableError("cannot start the server");
  listening.acceptor_->Start();
  return listening;
}

absl::Status ListeningServer::DialSelf(absl::Duration timeout) const {
  for (const std::string& text : addresses_) {
    TROUPE_ASSIGN_OR_RETURN(const Address address, ParseAddress(text));
    const int64_t shed_before = acceptor_->num_shed();
    const int64_t answered_before = relay_->num_answered();
    const absl::Status dialled = rpc::DialSelf(address, peers_, timeout);
    if (dialled.ok()) continue;
    if (acceptor_->num_shed() > shed_before) {
      return absl::ResourceExhaustedError("newcomers are turned away, no file descriptor is left");
    }
    if (address.kind == Address::Kind::kTcp && absl::IsDeadlineExceeded(dialled) &&
        relay_->num_answered() > answered_before) {
      return absl::ResourceExhaustedError("newcomers are answered, and it waits behind them");
    }
    return dialled;
  }
  return absl::OkStatus();
}

void ListeningServer::Shutdown(absl::Duration grace) {
  if (acceptor_ != nullptr) acceptor_->StopAccepting();
  if (server_ != nullptr) {
    grpc_side_->Close();
    if (grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService()) health->Shutdown();
    server_->Shutdown(GrpcDeadline(grace));
    server_->Wait();
    server_.reset();
  }
  // Only now: until here answers were on their way.
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (relay_ != nullptr) relay_->Drain(kLastBytesTimeout);
}

}  // namespace troupe::rpc
