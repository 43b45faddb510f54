#include "lib/rpc/control_client.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/address.h"
#include "lib/rpc/policy_change_codec.h"
#include <grpcpp/client_context.h>

namespace troupe::rpc {
namespace {

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Create(const std::string& address,
                                                                     const TransportSecurity& security) {
  TROUPE_ASSIGN_OR_RETURN(Address parsed, ParseAddress(address));
  TROUPE_RETURN_IF_ERROR(CheckTransportPolicy(parsed, security));
  return std::unique_ptr<ControlClient>(new ControlClient(std::move(parsed), security));
}

absl::StatusOr<std::unique_ptr<v1::Control::Stub>> ControlClient::Connect() const {
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, MakeChannel(address_, security_));
  return v1::Control::NewStub(channel);
}

absl::Status ControlClient::Named(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  const absl::Status plain = FromGrpc(status);
  return absl::Status(plain.code(), absl::StrCat("learner at ", address_.text, ": ", plain.message()));
}

absl::StatusOr<v1::StatusReply> ControlClient::Status(absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<v1::Control::Stub> stub, Connect());
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::StatusReply reply;
  TROUPE_RETURN_IF_ERROR(Named(stub->Status(&context, v1::StatusRequest(), &reply)));
  return reply;
}

absl::StatusOr<int64_t> ControlClient::Checkpoint(absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<v1::Control::Stub> stub, Connect());
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::CheckpointReply reply;
  TROUPE_RETURN_IF_ERROR(Named(stub->Checkpoint(&context, v1::CheckpointRequest(), &reply)));
  return reply.env_steps();
}

absl::Status ControlClient::Drain(const std::string& reason, absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<v1::Control::Stub> stub, Connect());
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::DrainRequest request;
  request.set_reason(reason);
  v1::DrainReply reply;
  return Named(stub->Drain(&context, request, &reply));
}

absl::StatusOr<policy::PolicyTablePtr> ControlClient::Policies(absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<v1::Control::Stub> stub, Connect());
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::PoliciesReply reply;
  TROUPE_RETURN_IF_ERROR(Named(stub->Policies(&context, v1::PoliciesRequest(), &reply)));
  return policy::PolicyTableFromJson(reply.table_json());
}

absl::StatusOr<int64_t> ControlClient::ChangePolicies(const policy::PolicyChange& change, absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<v1::Control::Stub> stub, Connect());
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  v1::ChangePoliciesReply reply;
  TROUPE_RETURN_IF_ERROR(Named(stub->ChangePolicies(&context, ToProto(change), &reply)));
  return reply.revision();
}

}  // namespace troupe::rpc
