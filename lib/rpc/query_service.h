#pragma once

#include "lib/serving/action_query.h"
#include "proto/troupe/v1/query.grpc.pb.h"

namespace troupe::rpc {

/// The Query service: a shell around ActionQueries, which it borrows. Thread-safe.
class QueryService final : public v1::Query::CallbackService {
 public:
  /// nullptr: every call is UNIMPLEMENTED.
  explicit QueryService(serving::ActionQueries* queries) : queries_(queries) {}

  grpc::ServerUnaryReactor* ComputeActions(grpc::CallbackServerContext* context,
                                           const v1::ComputeActionsRequest* request,
                                           v1::ComputeActionsReply* reply) override;

 private:
  serving::ActionQueries* const queries_;
};

}  // namespace troupe::rpc
