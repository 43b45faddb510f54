#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/rpc/transport.h"
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

namespace troupe::rpc {

/// A server that listens.
struct ListeningServer {
  std::unique_ptr<grpc::Server> server;
  std::vector<std::string> addresses;  ///< as given, with the port that port 0 became
};

/// Starts `builder`, whose services are registered, at `addresses` with the settings that every server has.
/// ALREADY_EXISTS: an address is in use; FAILED_PRECONDITION: plain text on the network without its flag;
/// INVALID_ARGUMENT, PERMISSION_DENIED: no such address here, or none.
absl::StatusOr<ListeningServer> StartListening(grpc::ServerBuilder& builder, const std::vector<std::string>& addresses,
                                               const TransportSecurity& security);

}  // namespace troupe::rpc
