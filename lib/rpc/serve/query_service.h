#pragma once

#include "lib/base/clock.h"
#include "lib/rpc/door/peer_book.h"
#include "lib/rpc/transport/answer_stream.h"
#include "lib/rpc/transport/stream_registry.h"
#include "lib/serving/action_query.h"
#include "proto/troupe/v1/query.grpc.pb.h"

namespace troupe::rpc {

/// The Query service: a shell around ActionQueries, which it borrows. Its requests come as bytes, which are looked at
/// before anything is made of them. Thread-safe.
class QueryService final
    : public v1::Query::WithRawCallbackMethod_ComputeActions<
          v1::Query::WithRawCallbackMethod_StreamActions<v1::Query::WithRawCallbackMethod_ListPolicies<
              v1::Query::WithRawCallbackMethod_DescribePolicies<v1::Query::Service>>>> {
 public:
  /// `queries` nullptr: every call is UNIMPLEMENTED. `peers`, `registry` (of its streams, which are to be ended before
  /// the server is shut down) and `clock` are the server's.
  QueryService(serving::ActionQueries* queries, const PeerBook* peers, StreamRegistry* registry, base::Clock* clock,
               const QueryStreamLimits& limits = {})
      : queries_(queries), peers_(peers) {
    streams_.limits = limits;
    streams_.queries = queries;
    streams_.registry = registry;
    streams_.clock = clock;
  }

  grpc::ServerUnaryReactor* ComputeActions(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* reply) override;
  AnswerStream::Reactor* StreamActions(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListPolicies(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* DescribePolicies(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* reply) override;

  /// Shared by its streams, and by other services of the server whose streams count among them.
  QueryStreams* streams() { return &streams_; }

 private:
  serving::ActionQueries* const queries_;
  const PeerBook* const peers_;
  QueryStreams streams_;
};

}  // namespace troupe::rpc
