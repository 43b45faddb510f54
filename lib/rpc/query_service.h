#pragma once

#include "lib/rpc/peer_book.h"
#include "lib/serving/action_query.h"
#include "proto/troupe/v1/query.grpc.pb.h"

namespace troupe::rpc {

/// The Query service: a shell around ActionQueries, which it borrows. Thread-safe.
class QueryService final : public v1::Query::CallbackService {
 public:
  /// `queries` nullptr: every call is UNIMPLEMENTED. `peers`: the server's.
  QueryService(serving::ActionQueries* queries, const PeerBook* peers) : queries_(queries), peers_(peers) {}

  grpc::ServerUnaryReactor* ComputeActions(grpc::CallbackServerContext* context,
                                           const v1::ComputeActionsRequest* request,
                                           v1::ComputeActionsReply* reply) override;
  grpc::ServerUnaryReactor* DescribePolicies(grpc::CallbackServerContext* context,
                                             const v1::DescribePoliciesRequest* request,
                                             v1::DescribePoliciesReply* reply) override;

 private:
  serving::ActionQueries* const queries_;
  const PeerBook* const peers_;
};

}  // namespace troupe::rpc
