#include "lib/rpc/control/monitor_service.h"

#include <exception>

#include "lib/policy/policy_table.h"
#include "lib/rpc/control/monitor_codec.h"
#include "lib/rpc/control/monitor_view.h"
#include "lib/rpc/transport/convert.h"

namespace troupe::rpc {

grpc::ServerUnaryReactor* MonitorService::Status(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                                 grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Caller caller = CallerOf(*context, door_, peers_);
  try {
    v1::StatusReply status = ToProto(handler_->GetStatus(caller));
    *status.mutable_protocol() = OurProtocol();
    if (caller.kind != Caller::Kind::kControlSocket) WithholdFromAnybody(&status);
    *reply = Serialize(status);
    reactor->Finish(grpc::Status::OK);
  } catch (const std::exception&) {
    reactor->Finish(grpc::Status(grpc::StatusCode::INTERNAL, "the status could not be gathered"));
  }
  return reactor;
}

grpc::ServerUnaryReactor* MonitorService::Policies(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                                   grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const Caller caller = CallerOf(*context, door_, peers_);
  try {
    const policy::PolicyTablePtr table = handler_->Policies(caller);
    v1::PoliciesReply policies;
    if (caller.kind == Caller::Kind::kControlSocket) {
      policies.set_table_json(policy::ToJson(*table));
    } else {
      policies = ToProto(ListPolicies(*table, /*whole=*/false));
    }
    *reply = Serialize(policies);
    reactor->Finish(grpc::Status::OK);
  } catch (const std::exception&) {
    reactor->Finish(grpc::Status(grpc::StatusCode::INTERNAL, "the policies could not be listed"));
  }
  return reactor;
}

}  // namespace troupe::rpc
