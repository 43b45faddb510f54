#include "lib/rpc/serve/query_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/serve/query_codec.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/grpc_deadline.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"
#include "lib/rpc/transport/unary_call.h"

namespace troupe::rpc {

absl::StatusOr<std::unique_ptr<QueryClient>> QueryClient::Create(const std::string& address,
                                                                 const TransportSecurity& security) {
  TROUPE_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, MakeChannel(parsed, security));
  return std::unique_ptr<QueryClient>(new QueryClient(parsed.text, channel));
}

absl::StatusOr<serving::ActionAnswer> QueryClient::ComputeActions(const serving::ActionQuery& query,
                                                                  absl::Duration timeout) {
  const std::string server = absl::StrCat("server at ", address_);
  TROUPE_ASSIGN_OR_RETURN(
      const v1::ComputeActionsReply reply,
      (CallUnary<v1::Query, v1::ComputeActionsReply>(channel_, "ComputeActions", ToProto(query), timeout, server)));
  absl::StatusOr<serving::ActionAnswer> answer = FromProto(reply, query);
  if (answer.ok()) return answer;
  return absl::InternalError(absl::StrCat(server, ": ", answer.status().message()));
}

absl::StatusOr<serving::PolicyDescriptions> QueryClient::DescribePolicies(const std::vector<policy::PolicyId>& ids,
                                                                          absl::Duration timeout) {
  const std::string server = absl::StrCat("server at ", address_);
  v1::DescribePoliciesRequest request;
  for (const policy::PolicyId& id : ids) request.add_policy_ids(id.value());
  TROUPE_ASSIGN_OR_RETURN(
      const v1::DescribePoliciesReply reply,
      (CallUnary<v1::Query, v1::DescribePoliciesReply>(channel_, "DescribePolicies", request, timeout, server)));
  absl::StatusOr<serving::PolicyDescriptions> descriptions = FromProto(reply);
  if (descriptions.ok()) return descriptions;
  return absl::InternalError(absl::StrCat(server, ": ", descriptions.status().message()));
}

absl::StatusOr<serving::PolicyDescriptions> QueryClient::ListPolicies(absl::Duration timeout) {
  TROUPE_ASSIGN_OR_RETURN(const v1::ListPoliciesReply reply, (CallUnary<v1::Query, v1::ListPoliciesReply>(
                                                                 channel_, "ListPolicies", v1::ListPoliciesRequest(),
                                                                 timeout, absl::StrCat("server at ", address_))));
  return FromProto(reply);
}

std::unique_ptr<QueryStreamClient> QueryClient::OpenStream() const {
  return std::make_unique<QueryStreamClient>(absl::StrCat("server at ", address_), channel_);
}

QueryStreamClient::QueryStreamClient(std::string server, std::shared_ptr<grpc::Channel> channel)
    : server_(std::move(server)), channel_(std::move(channel)), stub_(channel_) {}

QueryStreamClient::~QueryStreamClient() {
  if (started_ && !over_) {
    context_.TryCancel();
    Close().IgnoreError();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status QueryStreamClient::AwaitOperation(const base::Deadline& deadline) {
  void* tag = nullptr;
  bool ok = false;
  if (queue_.AsyncNext(&tag, &ok, GrpcDeadline(deadline.left())) == grpc::CompletionQueue::GOT_EVENT) {
    return ok ? absl::OkStatus() : Close();
  }
  context_.TryCancel();
  queue_.Next(&tag, &ok);
  Close().IgnoreError();
  return absl::DeadlineExceededError("no answer in time");
}

absl::Status QueryStreamClient::Close() {
  over_ = true;
  grpc::Status status;
  call_->Finish(&status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue_.Next(&tag, &ok);
  return status.ok() ? absl::UnavailableError("the server has ended the stream") : FromGrpc(status);
}

absl::StatusOr<serving::ActionAnswer> QueryStreamClient::ComputeActions(const serving::ActionQuery& query,
                                                                        absl::Duration timeout) {
  const base::Deadline deadline = base::Deadline::After(timeout);
  v1::ComputeActionsReply reply;
  const auto ask = [&]() -> absl::Status {
    if (over_) return absl::UnavailableError("the stream is over");
    if (!std::exchange(started_, true)) {
      call_ = stub_.PrepareCall(&context_, "/troupe.v1.Query/StreamActions", &queue_);
      call_->StartCall(nullptr);
      TROUPE_RETURN_IF_ERROR(AwaitOperation(deadline));
    }
    call_->Write(Serialize(ToProto(query)), nullptr);
    TROUPE_RETURN_IF_ERROR(AwaitOperation(deadline));
    grpc::ByteBuffer answer;
    call_->Read(&answer, nullptr);
    TROUPE_RETURN_IF_ERROR(AwaitOperation(deadline));
    TROUPE_RETURN_IF_ERROR(ParseBounded(answer, kAnswerLimit, &reply));
    if (!reply.has_error()) return absl::OkStatus();
    return absl::Status(static_cast<absl::StatusCode>(reply.error().code()),
                        reply.error().message().substr(0, kMaxErrorBytes));
  };
  if (const absl::Status status = ask(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(server_, ": ", std::string(status.message())));
  }
  absl::StatusOr<serving::ActionAnswer> answer = FromProto(reply, query);
  if (answer.ok()) return answer;
  return absl::InternalError(absl::StrCat(server_, ": ", std::string(answer.status().message())));
}

}  // namespace troupe::rpc
