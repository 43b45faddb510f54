#include "lib/rpc/control/monitor_client.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/control/control_socket.h"
#include "lib/rpc/control/monitor_codec.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/transport/unary_call.h"
#include "proto/troupe/v1/monitor.grpc.pb.h"

namespace troupe::rpc {

absl::StatusOr<std::unique_ptr<MonitorClient>> MonitorClient::Create(const std::string& address,
                                                                     const TransportSecurity& security) {
  TROUPE_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  TROUPE_RETURN_IF_ERROR(CheckTransportPolicy(parsed, security));
  return std::unique_ptr<MonitorClient>(new MonitorClient(
      absl::StrCat("learner at ", parsed.text), [parsed, security] { return MakeChannel(parsed, security); }));
}

std::unique_ptr<MonitorClient> MonitorClient::AtControlSocket(const std::string& path) {
  return std::unique_ptr<MonitorClient>(
      new MonitorClient(absl::StrCat("learner at ", path), [path] { return DialControl(path); }));
}

absl::StatusOr<RunStatus> MonitorClient::Status(absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, connect_());
  TROUPE_ASSIGN_OR_RETURN(const v1::StatusReply reply, (CallUnary<v1::Monitor, v1::StatusReply>(
                                                           channel, "Status", v1::StatusRequest(), timeout, learner_)));
  return FromProto(reply);
}

absl::StatusOr<PoliciesAnswer> MonitorClient::Policies(absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, connect_());
  TROUPE_ASSIGN_OR_RETURN(v1::PoliciesReply reply, (CallUnary<v1::Monitor, v1::PoliciesReply>(
                                                       channel, "Policies", v1::PoliciesRequest(), timeout, learner_)));
  return FromProto(std::move(reply));
}

}  // namespace troupe::rpc
