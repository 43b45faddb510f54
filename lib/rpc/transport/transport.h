#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/door/descriptor.h"
#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

namespace troupe::rpc {

/// How connections are made and protected. Today there is plain text, allowed where nobody else can listen;
/// certificates join here, and all that makes a credential asks this one place.
struct TransportSecurity {
  /// --insecure-plaintext-network: plain text also on addresses that other machines reach.
  bool insecure_plaintext_network = false;
  /// --use-http-proxy: connect through the proxy that the environment names (http_proxy). Otherwise it is ignored: it
  /// is meant for the web, and Docker writes it into every container.
  bool use_http_proxy = false;
};

/// FAILED_PRECONDITION when plain text would leave this machine without the flag.
absl::Status CheckTransportPolicy(const Address& address, const TransportSecurity& security);
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const Address& address,
                                                                               const TransportSecurity& security);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(const Address& address,
                                                                                 const TransportSecurity& security);

/// RELIABILITY's settings for every server: identity only, quotas, message and stream caps, keepalive; and
/// large frames.
void ApplyServerSettings(grpc::ServerBuilder& builder);

/// A channel whose connection is not shared with other channels to the same address: samples, weights and control do
/// not wait for each other. Does not block; connects with the first call.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const Address& address, const TransportSecurity& security);
/// A channel over a connected socket. It does not reconnect.
std::shared_ptr<grpc::Channel> MakeChannelOn(Descriptor socket);

/// gRPC's status as ours: the codes are the same numbers.
absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace troupe::rpc
