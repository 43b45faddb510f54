#include "lib/rpc/query_service.h"

#include <utility>

#include "lib/rpc/caller.h"
#include "lib/rpc/query_codec.h"
#include "lib/rpc/transport.h"

namespace troupe::rpc {
namespace {

serving::ActionQuery QueryOf(const v1::ComputeActionsRequest& request, Caller caller) {
  serving::ActionQuery query = FromProto(request);
  query.caller = std::move(caller);
  return query;
}

/// One call. It owns itself until gRPC is done with it.
class QueryReactor final : public grpc::ServerUnaryReactor {
 public:
  QueryReactor(serving::ActionQueries& queries, Caller caller, const v1::ComputeActionsRequest& request,
               v1::ComputeActionsReply* reply)
      : query_(QueryOf(request, std::move(caller))) {
    // The query lives until it is answered; the call, and with it request and reply, until Finish.
    give_up_ = queries.ComputeActions(query_, [this, reply](absl::StatusOr<serving::ActionAnswer> answer) {
      if (answer.ok()) ToProto(*answer, reply);
      Finish(ToGrpc(answer.status()));
    });
  }

  /// The caller has gone, or its deadline has passed. gRPC calls this only after the constructor has returned.
  void OnCancel() override {
    if (give_up_ != nullptr) give_up_();
  }
  void OnDone() override { delete this; }

 private:
  const serving::ActionQuery query_;
  serving::ActionQueries::GiveUp give_up_;
};

grpc::ServerUnaryReactor* AnswerNobody(grpc::CallbackServerContext& context) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  reactor->Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "this server answers no queries"));
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* QueryService::ComputeActions(grpc::CallbackServerContext* context,
                                                       const v1::ComputeActionsRequest* request,
                                                       v1::ComputeActionsReply* reply) {
  if (queries_ == nullptr) return AnswerNobody(*context);
  return new QueryReactor(*queries_, CallerOf(*context, Door::kAddress, peers_), *request, reply);
}

grpc::ServerUnaryReactor* QueryService::DescribePolicies(grpc::CallbackServerContext* context,
                                                         const v1::DescribePoliciesRequest* request,
                                                         v1::DescribePoliciesReply* reply) {
  if (queries_ == nullptr) return AnswerNobody(*context);
  const absl::StatusOr<serving::PolicyDescriptions> described = queries_->DescribePolicies(FromProto(*request));
  if (described.ok()) *reply = ToProto(*described);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(described.status()));
  return reactor;
}

}  // namespace troupe::rpc
