#pragma once

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "lib/base/caller.h"
#include "lib/base/mutex.h"
#include "lib/rpc/transport/answer_stream.h"
#include "lib/serving/action_query.h"
#include "proto/troupe/v1/query.pb.h"
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

namespace troupe::rpc {

/// One stream of queries, as the server sees it: an AnswerStream in front of ActionQueries.
class QueryStream final : public AnswerStream {
 public:
  /// Starts reading, or refuses the call. The result belongs to gRPC.
  static Reactor* Start(QueryStreams* streams, grpc::CallbackServerContext* context, base::Caller caller);

 private:
  QueryStream(QueryStreams* streams, grpc::CallbackServerContext* context, base::Caller caller)
      : AnswerStream(streams, context, std::move(caller)) {}

  // AnswerStream
  void Answer(grpc::ByteBuffer bytes) override;
  void GiveUp() override;

  void OnAnswer(const absl::StatusOr<serving::ActionAnswer>& answer);

  // The request that is being answered.
  v1::ComputeActionsRequest request_;
  serving::ActionQuery query_;  ///< borrows the request's arrays

  base::Mutex mutex_;
  bool given_up_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;  ///< begun so far
  uint64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;  ///< requests_ when the last one was
  /// Of the request with the number requests_, while it waits to be answered.
  serving::ActionQueries::GiveUp give_up_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
