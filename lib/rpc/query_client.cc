#include "lib/rpc/query_client.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/address.h"
#include "lib/rpc/query_codec.h"
#include <grpcpp/client_context.h>

namespace troupe::rpc {

absl::StatusOr<std::unique_ptr<QueryClient>> QueryClient::Create(const std::string& address,
                                                                 const TransportSecurity& security) {
  TROUPE_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, MakeChannel(parsed, security));
  return std::unique_ptr<QueryClient>(new QueryClient(parsed.text, channel));
}

absl::StatusOr<serving::ActionAnswer> QueryClient::ComputeActions(const serving::ActionQuery& query,
                                                                  absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  v1::ComputeActionsReply reply;
  const absl::Status status = FromGrpc(stub_->ComputeActions(&context, ToProto(query), &reply));
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat("server at ", address_, ": ", status.message()));
  absl::StatusOr<serving::ActionAnswer> answer = FromProto(reply, query);
  if (answer.ok()) return answer;
  return absl::InternalError(absl::StrCat("server at ", address_, ": ", answer.status().message()));
}

}  // namespace troupe::rpc
