#include "lib/rpc/query_service.h"

#include <memory>
#include <utility>

#include "lib/rpc/query_codec.h"
#include "lib/rpc/transport.h"

namespace troupe::rpc {

grpc::ServerUnaryReactor* QueryService::ComputeActions(grpc::CallbackServerContext* context,
                                                       const v1::ComputeActionsRequest* request,
                                                       v1::ComputeActionsReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (queries_ == nullptr) {
    reactor->Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "this server answers no queries"));
    return reactor;
  }
  // The query lives until it is answered; the call, and with it request and reply, until Finish.
  const auto query = std::make_shared<const serving::ActionQuery>(FromProto(*request));
  queries_->ComputeActions(*query, [query, reactor, reply](absl::StatusOr<serving::ActionAnswer> answer) {
    if (answer.ok()) ToProto(*answer, reply);
    reactor->Finish(ToGrpc(answer.status()));
  });
  return reactor;
}

}  // namespace troupe::rpc
