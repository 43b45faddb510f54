#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lib/base/caller.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/rpc/address_shares.h"
#include "lib/rpc/limits.h"
#include "lib/rpc/stream_registry.h"
#include "lib/serving/action_query.h"
#include "proto/troupe/v1/query.pb.h"
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

namespace troupe::rpc {

/// How many streams of queries a server has, and how long each may be without a request. Plain value.
struct QueryStreamLimits {
  int64_t open = kMaxQueryStreams;
  int64_t open_of_address = kMaxQueryStreamsOfAddress;
  absl::Duration idle = kQueryStreamIdle;
};

/// What all StreamActions streams of a server share. Outlives them.
struct QueryStreams {
  QueryStreamLimits limits;
  serving::ActionQueries* queries = nullptr;
  StreamRegistry* registry = nullptr;
  base::Clock* clock = nullptr;
  AddressShares open{"streams of queries", "ask without a stream"};  ///< by who has them: "10.0.0.7", "unix socket"
};

/// One stream of queries, as the server sees it: reads a request, answers it, then the next. A shell for ActionQueries.
///
/// Made per call, owned by itself until gRPC is done with it. End and CheckProgress are thread-safe; never blocks, but
/// where a query computes on the thread that brought it. Invariants: 1. one request is answered at a time, in order;
/// 2. one write is in flight, or none; 3. Finish is called once, and no operation starts after it. States: waiting (a
/// read is in flight) -> answering -> writing (and reading the next) -> waiting ...; any -> ending -> finished.
/// Capacity: the request that is answered, and one beyond it; QueryStreamLimits of a server. Without a request for so
/// long it ends with DEADLINE_EXCEEDED, and is cancelled where its client has not read an answer for so long. Shutdown:
/// End answers what is being answered, and no more.
class QueryStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>, public ServedStream {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  /// Starts reading, or refuses the call. The result belongs to gRPC.
  static Reactor* Start(QueryStreams* streams, grpc::CallbackServerContext* context, base::Caller caller);

  // ServedStream
  void End(const absl::Status& status) override;
  void CheckProgress(absl::Duration now) override;

  // grpc::ServerBidiReactor
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  QueryStream(QueryStreams* streams, grpc::CallbackServerContext* context, base::Caller caller)
      : streams_(*streams), context_(context), caller_(std::move(caller)), idle_since_(streams->clock->SteadyNow()) {}

  /// Answers the request in incoming_; by whoever has set busy_.
  void Answer();
  void OnAnswer(const absl::StatusOr<serving::ActionAnswer>& answer);
  /// Nothing is answered or written any more: goes on with what has come meanwhile, or ends.
  void GoOn();
  void RequestEndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  QueryStreams& streams_;
  grpc::CallbackServerContext* const context_;
  const base::Caller caller_;
  std::shared_ptr<QueryStream> self_;  ///< until OnDone
  grpc::ByteBuffer incoming_;          ///< of the read in flight; where held_, a request that waits

  // Of whoever set busy_.
  v1::ComputeActionsRequest request_;
  serving::ActionQuery query_;  ///< borrows the request's arrays
  grpc::ByteBuffer outgoing_;

  base::Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;        ///< a request is being answered, or its answer written
  bool held_ ABSL_GUARDED_BY(mutex_) = false;        ///< another request has come meanwhile
  bool reads_over_ ABSL_GUARDED_BY(mutex_) = false;  ///< the client has half-closed
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  uint64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;  ///< begun so far
  uint64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;  ///< requests_ when the last one was
  /// Of the request with the number requests_, while it waits to be answered.
  serving::ActionQueries::GiveUp give_up_ ABSL_GUARDED_BY(mutex_);
  absl::Duration idle_since_ ABSL_GUARDED_BY(mutex_);  ///< steady clock; while not busy_
  std::optional<absl::Duration> writing_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
