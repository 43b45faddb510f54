#include "lib/rpc/control/control_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/codec/policy_change_codec.h"
#include "lib/rpc/control/control_socket.h"
#include "lib/rpc/transport/unary_call.h"

namespace troupe::rpc {

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Connect(const std::string& path) {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, DialControl(path));
  return std::unique_ptr<ControlClient>(new ControlClient(absl::StrCat("learner at ", path), std::move(channel)));
}

absl::StatusOr<int64_t> ControlClient::Checkpoint(const std::string& to, absl::Duration timeout) {
  v1::CheckpointRequest request;
  request.set_to(to);
  TROUPE_ASSIGN_OR_RETURN(const v1::CheckpointReply reply, (CallUnary<v1::Control, v1::CheckpointReply>(
                                                               channel_, "Checkpoint", request, timeout, learner_)));
  return reply.env_steps();
}

absl::StatusOr<int64_t> ControlClient::PruneCheckpoints(int64_t keep, absl::Duration timeout) {
  v1::PruneCheckpointsRequest request;
  request.set_keep(keep);
  TROUPE_ASSIGN_OR_RETURN(
      const v1::PruneCheckpointsReply reply,
      (CallUnary<v1::Control, v1::PruneCheckpointsReply>(channel_, "PruneCheckpoints", request, timeout, learner_)));
  return reply.removed();
}

absl::Status ControlClient::Drain(const std::string& reason, absl::Duration timeout) {
  v1::DrainRequest request;
  request.set_reason(reason);
  return CallUnary<v1::Control, v1::DrainReply>(channel_, "Drain", request, timeout, learner_).status();
}

absl::StatusOr<int64_t> ControlClient::ChangePolicies(const policy::PolicyChange& change, absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const v1::ChangePoliciesReply reply,
                          (CallUnary<v1::Control, v1::ChangePoliciesReply>(channel_, "ChangePolicies", ToProto(change),
                                                                           timeout, learner_)));
  return reply.revision();
}

}  // namespace troupe::rpc
