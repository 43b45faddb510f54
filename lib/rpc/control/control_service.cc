#include "lib/rpc/control/control_service.h"

#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/rpc/codec/policy_change_codec.h"
#include "lib/rpc/transport/caller.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"
#include "lib/rpc/transport/transport.h"

namespace troupe::rpc {
namespace {

grpc::Status FromException(const std::exception& e) { return grpc::Status(grpc::StatusCode::INTERNAL, e.what()); }

}  // namespace

grpc::ServerUnaryReactor* ControlService::Checkpoint(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  v1::CheckpointRequest parsed;
  absl::Status read = ParseBounded(*request, kAnswerLimit, &parsed);
  const std::string& to = parsed.to();
  if (read.ok() && (to.size() > kMaxPathBytes || to.find('\0') != std::string::npos)) {
    read = absl::InvalidArgumentError(absl::StrCat("to: got ", to.size(), " bytes, expected a path of at most ",
                                                   kMaxPathBytes, " bytes without a zero byte"));
  }
  if (!read.ok()) {
    reactor->Finish(ToGrpc(read));
    return reactor;
  }
  // The call, and with it the reply, lives until Finish.
  handler_->RequestCheckpoint(CallerOf(*context, Door::kControl, nullptr), to,
                              [reactor, reply](const absl::StatusOr<int64_t>& env_steps) {
                                v1::CheckpointReply message;
                                message.set_env_steps(env_steps.value_or(0));
                                *reply = Serialize(message);
                                reactor->Finish(ToGrpc(env_steps.status()));
                              });
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::PruneCheckpoints(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  v1::PruneCheckpointsRequest parsed;
  absl::Status read = ParseBounded(*request, kAnswerLimit, &parsed);
  if (read.ok() && (parsed.keep() < 1 || parsed.keep() > kMaxKeptCheckpoints)) {
    read =
        absl::InvalidArgumentError(absl::StrCat("keep: got ", parsed.keep(), ", expected 1 to ", kMaxKeptCheckpoints));
  }
  if (!read.ok()) {
    reactor->Finish(ToGrpc(read));
    return reactor;
  }
  handler_->RequestPrune(CallerOf(*context, Door::kControl, nullptr), static_cast<int>(parsed.keep()),
                         [reactor, reply](const absl::StatusOr<int64_t>& removed) {
                           v1::PruneCheckpointsReply message;
                           message.set_removed(removed.value_or(0));
                           *reply = Serialize(message);
                           reactor->Finish(ToGrpc(removed.status()));
                         });
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::Drain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  v1::DrainRequest parsed;
  if (const absl::Status read = ParseBounded(*request, kAnswerLimit, &parsed); !read.ok()) {
    reactor->Finish(ToGrpc(read));
    return reactor;
  }
  try {
    handler_->RequestDrain(CallerOf(*context, Door::kControl, nullptr),
                           base::LogSafe(parsed.reason(), kMaxReasonBytes));
    *reply = Serialize(v1::DrainReply());
    reactor->Finish(grpc::Status::OK);
  } catch (const std::exception& e) {
    reactor->Finish(FromException(e));
  }
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::ChangePolicies(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  v1::ChangePoliciesRequest parsed;
  const absl::Status read = ParseBounded(*request, kAnswerLimit, &parsed);
  absl::StatusOr<policy::PolicyChange> change = read.ok() ? FromProto(parsed) : read;
  if (!change.ok()) {
    reactor->Finish(ToGrpc(change.status()));
    return reactor;
  }
  handler_->ChangePolicies(CallerOf(*context, Door::kControl, nullptr), *std::move(change),
                           [reactor, reply](const absl::StatusOr<int64_t>& revision) {
                             v1::ChangePoliciesReply message;
                             message.set_revision(revision.value_or(0));
                             *reply = Serialize(message);
                             reactor->Finish(ToGrpc(revision.status()));
                           });
  return reactor;
}

}  // namespace troupe::rpc
