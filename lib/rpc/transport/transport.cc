#include "lib/rpc/transport/transport.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/limits.h"
#include <google/protobuf/stubs/logging.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/support/channel_arguments.h>

namespace troupe::rpc {
namespace {

/// Once a process. Keeps gRPC up for as long as it lives: who lets go of the last channel would otherwise join gRPC's
/// executor, which may sit in a wait of 10 s. Keeps Protobuf from writing a line for each broken message that a
/// stranger sends; what we make of one is said where it is refused. Debian's Abseil looks for cycles of locks whenever
/// gRPC takes one, all threads under one lock: that is for gRPC's own tests.
void SetUpLibraries() {
  static const bool done = [] {
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    grpc_init();
    google::protobuf::SetLogHandler(nullptr);
    return true;
  }();
  (void)done;
}

// Frames as large as HTTP/2 allows: a fragment then is one frame and its 9-byte header, not 256 of them.
constexpr int kFrameBytes = 16777215;
// One read takes what the socket has, up to so much, into one slice.
constexpr int kReadChunkBytes = 1 << 20;

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

/// Names and values of the channel arguments that both sides share.
template <typename SetInt>
void SharedArguments(SetInt set) {
  set(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  // Windows grow to what is under way in a round trip, a connection's among them, which has no setting.
  set(GRPC_ARG_HTTP2_BDP_PROBE, 1);
  set(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadChunkBytes);
  set(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadChunkBytes);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepaliveInterval));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kKeepaliveTimeout));
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

/// What all channels have.
grpc::ChannelArguments ClientArguments() {
  grpc::ChannelArguments arguments;
  SharedArguments([&arguments](const char* name, int value) { arguments.SetInt(name, value); });
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  return arguments;
}

}  // namespace

absl::Status CheckTransportPolicy(const Address& address, const TransportSecurity& security) {
  if (address.local() || security.insecure_plaintext_network) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "address ", address.text,
      " is reached by other machines and connections are plain text; use a loopback address or a Unix socket, or "
      "give --insecure-plaintext-network on a network you trust"));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Address& address,
                                                                               const TransportSecurity& security) {
  TROUPE_RETURN_IF_ERROR(CheckTransportPolicy(address, security));
  return grpc::InsecureServerCredentials();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const Address& address,
                                                                                 const TransportSecurity& security) {
  TROUPE_RETURN_IF_ERROR(CheckTransportPolicy(address, security));
  return grpc::InsecureChannelCredentials();
}

void ApplyServerSettings(grpc::ServerBuilder& builder) {
  SetUpLibraries();
  SharedArguments([&builder](const char* name, int value) { builder.AddChannelArgument(name, value); });
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshakeTimeout));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, Milliseconds(kMinPingInterval));
  grpc::ResourceQuota quota("troupe");
  quota.Resize(kServerMemoryBytes);
  builder.SetResourceQuota(quota);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Address& address, const TransportSecurity& security) {
  SetUpLibraries();
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                          MakeChannelCredentials(address, security));
  grpc::ChannelArguments arguments = ClientArguments();
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, security.use_http_proxy ? 1 : 0);
  // Our Backoff decides when to try again; gRPC's own must not make it wait longer.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // Despite its name: how long one attempt may take, from connect to the server's SETTINGS.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Milliseconds(kHandshakeTimeout));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // Streams resume by themselves (docs/protocol.md), which gRPC's transparent retries know nothing of.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(address.text, credentials, arguments);
}

std::shared_ptr<grpc::Channel> MakeChannelOn(Descriptor socket) {
  SetUpLibraries();
  return grpc::CreateCustomInsecureChannelFromFd("socket", socket.Release(), ClientArguments());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // The words are a peer's.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      base::TerminalSafe(status.error_message(), kMaxErrorBytes, /*keep_lines=*/true));
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace troupe::rpc
