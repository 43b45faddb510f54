#include "lib/rpc/monitor_service.h"

#include <exception>

#include "lib/policy/policy_table.h"
#include "lib/rpc/convert.h"
#include "lib/rpc/monitor_view.h"

namespace troupe::rpc {

grpc::ServerUnaryReactor* MonitorService::Status(grpc::CallbackServerContext* context, const v1::StatusRequest*,
                                                 v1::StatusReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Caller caller = CallerOf(*context, door_, peers_);
  try {
    *reply = handler_->GetStatus(caller);
    *reply->mutable_protocol() = OurProtocol();
    if (caller.kind != Caller::Kind::kControlSocket) WithholdFromAnybody(reply);
    reactor->Finish(grpc::Status::OK);
  } catch (const std::exception&) {
    reactor->Finish(grpc::Status(grpc::StatusCode::INTERNAL, "the status could not be gathered"));
  }
  return reactor;
}

grpc::ServerUnaryReactor* MonitorService::Policies(grpc::CallbackServerContext* context, const v1::PoliciesRequest*,
                                                   v1::PoliciesReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Caller caller = CallerOf(*context, door_, peers_);
  try {
    const policy::PolicyTablePtr table = handler_->Policies(caller);
    if (caller.kind == Caller::Kind::kControlSocket) {
      reply->set_table_json(policy::ToJson(*table));
    } else {
      *reply = ListPolicies(*table, /*whole=*/false);
    }
    reactor->Finish(grpc::Status::OK);
  } catch (const std::exception&) {
    reactor->Finish(grpc::Status(grpc::StatusCode::INTERNAL, "the policies could not be listed"));
  }
  return reactor;
}

}  // namespace troupe::rpc
