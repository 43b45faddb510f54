#include "lib/rpc/serve/query_service.h"

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "lib/base/hidden_order.h"
#include "lib/base/mutex.h"
#include "lib/rpc/serve/query_codec.h"
#include "lib/rpc/serve/query_stream.h"
#include "lib/rpc/transport/caller.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"
#include "lib/rpc/transport/transport.h"

namespace troupe::rpc {
namespace {

/// One call. It owns itself: until it is answered, where that is before it was shown to gRPC, else until gRPC is done
/// with it. The usual query is of the former kind, and takes gRPC's own reactor: that is over on the thread that
/// answers, while every other reactor's OnDone is handed to another one.
class QueryReactor final : public grpc::ServerUnaryReactor {
 public:
  static grpc::ServerUnaryReactor* Start(serving::ActionQueries& queries, grpc::CallbackServerContext& context,
                                         Caller caller, std::unique_ptr<v1::ComputeActionsRequest> request,
                                         grpc::ByteBuffer* reply) {
    auto* const call = new QueryReactor(std::move(caller), std::move(request), reply);
    // The query lives until it is answered; the call, and with it the reply, until Finish.
    call->give_up_ = queries.ComputeActions(
        call->query_, [call](const absl::StatusOr<serving::ActionAnswer>& answer) { call->OnAnswer(answer); });
    base::HandOver(call);
    if (!call->AnsweredAtOnce()) return call;
    grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
    reactor->Finish(call->status_);
    delete call;
    return reactor;
  }

  /// The caller has gone, or its deadline has passed. gRPC calls this only after Start has returned.
  void OnCancel() override {
    const base::Reaction reaction(this);
    if (give_up_ != nullptr) give_up_();
  }
  void OnDone() override {
    base::TakeOver(this);
    delete this;
  }

 private:
  QueryReactor(Caller caller, std::unique_ptr<v1::ComputeActionsRequest> request, grpc::ByteBuffer* reply)
      : request_(std::move(request)), query_(FromProto(*request_)), reply_(reply) {
    query_.caller = std::move(caller);
  }

  void OnAnswer(const absl::StatusOr<serving::ActionAnswer>& answer) {
    if (answer.ok()) {
      v1::ComputeActionsReply message;
      ToProto(*answer, &message);
      *reply_ = Serialize(message);
    }
    status_ = ToGrpc(answer.status());
    {
      base::MutexLock lock(&mutex_);
      answered_ = true;
      if (!shown_) return;  // it is Start's, and gone as soon as that has the lock
    }
    base::HandOver(this);
    Finish(status_);
  }

  /// Whether Start is to answer; otherwise OnAnswer does, now or some day.
  bool AnsweredAtOnce() {
    base::MutexLock lock(&mutex_);
    shown_ = !answered_;
    return answered_;
  }

  const std::unique_ptr<v1::ComputeActionsRequest> request_;
  serving::ActionQuery query_;  ///< borrows the request's arrays
  grpc::ByteBuffer* const reply_;
  serving::ActionQueries::GiveUp give_up_;
  grpc::Status status_;  ///< by OnAnswer, before answered_

  base::Mutex mutex_;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  bool shown_ ABSL_GUARDED_BY(mutex_) = false;  ///< to gRPC: OnAnswer finishes it
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

AnswerStream::Reactor* QueryService::StreamActions(grpc::CallbackServerContext* context) {
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
  return QueryReactor::Start(*queries_, *context, CallerOf(*context, Door::kAddress, peers_), std::move(parsed), reply);
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
