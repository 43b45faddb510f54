#include "lib/rpc/worker/weight_follower.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/codec/weight_codec.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "proto/troupe/v1/weights.pb.h"
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

namespace troupe::rpc {

absl::StatusOr<std::unique_ptr<WeightFollower>> WeightFollower::Create(const std::string& address,
                                                                       const TransportSecurity& security) {
  TROUPE_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, MakeChannel(parsed, security));
  return std::unique_ptr<WeightFollower>(new WeightFollower(parsed.text, std::move(channel)));
}

absl::Status WeightFollower::Follow(serving::WeightSink* sink) {
  grpc::ClientContext context;
  {
    base::MutexLock lock(&mutex_);
    if (stopped_) return absl::CancelledError("stopped");
    context_ = &context;
  }
  const absl::Status status = FollowStream(&context, sink);
  base::MutexLock lock(&mutex_);
  context_ = nullptr;
  if (stopped_) return absl::CancelledError("stopped");
  return absl::Status(status.code(), absl::StrCat("learner at ", address_, ": ", std::string(status.message())));
}

absl::Status WeightFollower::FollowStream(grpc::ClientContext* context, serving::WeightSink* sink) {
  grpc::GenericStub stub(channel_);
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  v1::SubscribeRequest request;
  request.mutable_protocol()->set_major(kProtocolMajor);
  request.mutable_protocol()->set_minor(kProtocolMinor);
  request.set_policies(true);
  const auto call = stub.PrepareCall(context, "/troupe.v1.Weights/Subscribe", &queue);
  call->StartCall(nullptr);
  bool stands = next();
  if (stands) {
    call->Write(Serialize(request), nullptr);
    stands = next();
  }
  WeightAssembler assembler = WeightAssembler::WithPolicies();
  const auto take = [&](const grpc::ByteBuffer& message) -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(std::optional<WeightAssembler::Update> update, assembler.Add(message));
    if (!update.has_value()) return absl::OkStatus();
    if (update->policies != nullptr) return sink->OnPolicies(update->policies);
    if (update->snapshot != nullptr) return sink->OnWeights(std::move(update->snapshot));
    return absl::OkStatus();  // announced: answers name the version that made the weights
  };
  absl::Status status;
  while (stands && status.ok()) {
    grpc::ByteBuffer message;
    call->Read(&message, nullptr);
    stands = next();
    if (stands) status = take(message);
  }
  if (!status.ok()) context->TryCancel();
  grpc::Status ended;
  call->Finish(&ended, nullptr);
  next();
  queue.Shutdown();
  while (next()) {
  }
  if (!status.ok()) return status;
  return ended.ok() ? absl::UnavailableError("it has ended the stream") : FromGrpc(ended);
}

void WeightFollower::Stop() {
  base::MutexLock lock(&mutex_);
  stopped_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

}  // namespace troupe::rpc
