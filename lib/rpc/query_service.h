#pragma once

#include "lib/rpc/peer_book.h"
#include "lib/serving/action_query.h"
#include "proto/troupe/v1/query.grpc.pb.h"

namespace troupe::rpc {

/// The Query service: a shell around ActionQueries, which it borrows. Its requests come as bytes, which are looked at
/// before anything is made of them. Thread-safe.
class QueryService final : public v1::Query::WithRawCallbackMethod_ComputeActions<
                               v1::Query::WithRawCallbackMethod_DescribePolicies<v1::Query::Service>> {
 public:
  /// `queries` nullptr: every call is UNIMPLEMENTED. `peers`: the server's.
  QueryService(serving::ActionQueries* queries, const PeerBook* peers) : queries_(queries), peers_(peers) {}

  grpc::ServerUnaryReactor* ComputeActions(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* DescribePolicies(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* reply) override;

 private:
  serving::ActionQueries* const queries_;
  const PeerBook* const peers_;
};

}  // namespace troupe::rpc
