#include "lib/rpc/query_service.h"

#include <memory>
#include <utility>

#include "lib/rpc/caller.h"
#include "lib/rpc/convert.h"
#include "lib/rpc/limits.h"
#include "lib/rpc/parsed_size.h"
#include "lib/rpc/query_codec.h"
#include "lib/rpc/transport.h"

namespace troupe::rpc {
namespace {

/// One call. It owns itself until gRPC is done with it.
class QueryReactor final : public grpc::ServerUnaryReactor {
 public:
  QueryReactor(serving::ActionQueries& queries, Caller caller, std::unique_ptr<v1::ComputeActionsRequest> request,
               grpc::ByteBuffer* reply)
      : request_(std::move(request)), query_(FromProto(*request_)) {
    query_.caller = std::move(caller);
    // The query lives until it is answered; the call, and with it the reply, until Finish.
    give_up_ = queries.ComputeActions(query_, [this, reply](absl::StatusOr<serving::ActionAnswer> answer) {
      if (answer.ok()) {
        v1::ComputeActionsReply message;
        ToProto(*answer, &message);
        *reply = Serialize(message);
      }
      Finish(ToGrpc(answer.status()));
    });
  }

  /// The caller has gone, or its deadline has passed. gRPC calls this only after the constructor has returned.
  void OnCancel() override {
    if (give_up_ != nullptr) give_up_();
  }
  void OnDone() override { delete this; }

 private:
  const std::unique_ptr<v1::ComputeActionsRequest> request_;
  serving::ActionQuery query_;  ///< borrows the request's arrays
  serving::ActionQueries::GiveUp give_up_;
};

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

absl::Status AnswersNobody() { return absl::UnimplementedError("this server answers no queries"); }

/// Whether anybody waits for the answer still.
absl::Status CheckWanted(const grpc::CallbackServerContext& context) {
  if (context.IsCancelled()) return absl::CancelledError("the call was cancelled before it was begun");
  if (gpr_time_cmp(context.raw_deadline(), gpr_now(context.raw_deadline().clock_type)) > 0) return absl::OkStatus();
  return absl::DeadlineExceededError("the call's deadline had passed before it was begun");
}

}  // namespace

QueryStream::Reactor* QueryService::StreamActions(grpc::CallbackServerContext* context) {
  return QueryStream::Start(&streams_, context, CallerOf(*context, Door::kAddress, peers_));
}

grpc::ServerUnaryReactor* QueryService::ListPolicies(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  if (queries_ == nullptr) return Answer(*context, AnswersNobody());
  v1::ListPoliciesRequest parsed;
  const absl::Status read = ParseBounded(*request, kDescriptionQueryLimit, &parsed);
  if (read.ok()) *reply = Serialize(ToList(queries_->ListPolicies()));
  return Answer(*context, read);
}

grpc::ServerUnaryReactor* QueryService::ComputeActions(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  if (queries_ == nullptr) return Answer(*context, AnswersNobody());
  if (const absl::Status wanted = CheckWanted(*context); !wanted.ok()) return Answer(*context, wanted);
  auto parsed = std::make_unique<v1::ComputeActionsRequest>();
  if (const absl::Status read = ParseBounded(*request, kActionQueryLimit, parsed.get()); !read.ok()) {
    return Answer(*context, read);
  }
  return new QueryReactor(*queries_, CallerOf(*context, Door::kAddress, peers_), std::move(parsed), reply);
}

grpc::ServerUnaryReactor* QueryService::DescribePolicies(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  if (queries_ == nullptr) return Answer(*context, AnswersNobody());
  v1::DescribePoliciesRequest parsed;
  if (const absl::Status read = ParseBounded(*request, kDescriptionQueryLimit, &parsed); !read.ok()) {
    return Answer(*context, read);
  }
  const absl::StatusOr<serving::PolicyDescriptions> described = queries_->DescribePolicies(FromProto(parsed));
  if (described.ok()) *reply = Serialize(ToProto(*described));
  return Answer(*context, described.status());
}

}  // namespace troupe::rpc
