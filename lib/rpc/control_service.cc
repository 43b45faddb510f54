#include "lib/rpc/control_service.h"

#include <exception>

#include "lib/base/log.h"
#include "lib/rpc/caller.h"
#include "lib/rpc/limits.h"
#include "lib/rpc/policy_change_codec.h"
#include "lib/rpc/transport.h"

namespace troupe::rpc {
namespace {

grpc::Status FromException(const std::exception& e) { return grpc::Status(grpc::StatusCode::INTERNAL, e.what()); }

}  // namespace

grpc::ServerUnaryReactor* ControlService::Checkpoint(grpc::CallbackServerContext* context, const v1::CheckpointRequest*,
                                                     v1::CheckpointReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // The call, and with it the reply, lives until Finish.
  handler_->RequestCheckpoint(CallerOf(*context, Door::kControl, nullptr),
                              [reactor, reply](const absl::StatusOr<int64_t>& env_steps) {
                                if (env_steps.ok()) reply->set_env_steps(*env_steps);
                                reactor->Finish(ToGrpc(env_steps.status()));
                              });
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                                v1::DrainReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  try {
    handler_->RequestDrain(CallerOf(*context, Door::kControl, nullptr),
                           base::LogSafe(request->reason(), kMaxReasonBytes));
    reactor->Finish(grpc::Status::OK);
  } catch (const std::exception& e) {
    reactor->Finish(FromException(e));
  }
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::ChangePolicies(grpc::CallbackServerContext* context,
                                                         const v1::ChangePoliciesRequest* request,
                                                         v1::ChangePoliciesReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<policy::PolicyChange> change = FromProto(*request);
  if (!change.ok()) {
    reactor->Finish(ToGrpc(change.status()));
    return reactor;
  }
  handler_->ChangePolicies(CallerOf(*context, Door::kControl, nullptr), *std::move(change),
                           [reactor, reply](const absl::StatusOr<int64_t>& revision) {
                             if (revision.ok()) reply->set_revision(*revision);
                             reactor->Finish(ToGrpc(revision.status()));
                           });
  return reactor;
}

}  // namespace troupe::rpc
