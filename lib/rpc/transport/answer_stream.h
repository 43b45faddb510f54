#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/caller.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/rpc/transport/address_shares.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/stream_registry.h"
#include "lib/serving/action_query.h"
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

namespace troupe::rpc {

/// How many streams of queries a server has, and how long each may be without a request. Plain value.
struct QueryStreamLimits {
  int64_t open = kMaxQueryStreams;
  int64_t open_of_address = kMaxQueryStreamsOfAddress;
  absl::Duration idle = kQueryStreamIdle;
};

/// Shared by all StreamActions streams of a server and those of its reflection. Outlives them.
struct QueryStreams {
  QueryStreamLimits limits;
  serving::ActionQueries* queries = nullptr;
  StreamRegistry* registry = nullptr;
  base::Clock* clock = nullptr;
  /// By who has them: "10.0.0.7", "unix socket".
  AddressShares open{"streams of queries", "end one of them, or ask without a stream"};

  /// A place for a stream of this caller, until GiveBack. RESOURCE_EXHAUSTED where there is none.
  absl::Status Take(const base::Caller& caller);
  void GiveBack(const base::Caller& caller);
};

/// One stream of requests, as the server sees it: reads a request, has it answered, then the next.
///
/// Made per call, owned by itself until gRPC is done with it. End and CheckProgress are thread-safe; never blocks, but
/// where Answer computes on the thread that brought the request. Invariants: 1. one request is answered at a time, in
/// order; 2. one write is in flight, or none; 3. Finish is called once, and no operation starts after it. States:
/// waiting (a read is in flight) -> answering -> writing (and reading the next) -> waiting ...; any -> ending ->
/// finished. Capacity: the request that is answered, and one beyond it; QueryStreamLimits of a server. Without a
/// request for so long it ends with DEADLINE_EXCEEDED, and is cancelled where its client has not read an answer for so
/// long. Shutdown: End answers what is being answered, and no more.
class AnswerStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>, public ServedStream {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // ServedStream
  void End(const absl::Status& status) final;
  void CheckProgress(absl::Duration now) final;

  // grpc::ServerBidiReactor
  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;

 protected:
  AnswerStream(QueryStreams* streams, grpc::CallbackServerContext* context, base::Caller caller)
      : streams_(*streams), context_(context), caller_(std::move(caller)), idle_since_(streams->clock->SteadyNow()) {}
  /// Starts reading, or refuses the call where there is no place. The result belongs to gRPC.
  static Reactor* Begin(std::shared_ptr<AnswerStream> stream);
  /// A call that ends with `status` as it begins. The result belongs to gRPC.
  static Reactor* Refuse(const absl::Status& status);

  /// Has Reply or Fail called once, now or later, on any thread. The next request comes after that.
  virtual void Answer(grpc::ByteBuffer request) = 0;
  /// The client is gone: what Answer has begun needs no answer, but Reply or Fail all the same.
  virtual void GiveUp() {}
  void Reply(grpc::ByteBuffer answer);
  /// The request is none: the stream ends with `status`.
  void Fail(const absl::Status& status);

  const base::Caller& caller() const { return caller_; }
  QueryStreams& streams() { return streams_; }

 private:
  /// Nothing is answered or written any more: goes on with what has come meanwhile, or ends. By whoever has set busy_.
  void GoOn();
  void RequestEndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  QueryStreams& streams_;
  grpc::CallbackServerContext* const context_;
  const base::Caller caller_;
  std::shared_ptr<AnswerStream> self_;  ///< until OnDone
  grpc::ByteBuffer incoming_;           ///< of the read in flight; where held_, a request that waits
  grpc::ByteBuffer outgoing_;           ///< of whoever set busy_

  base::Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;        ///< a request is being answered, or its answer written
  bool held_ ABSL_GUARDED_BY(mutex_) = false;        ///< another request has come meanwhile
  bool reads_over_ ABSL_GUARDED_BY(mutex_) = false;  ///< the client has half-closed
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  absl::Duration idle_since_ ABSL_GUARDED_BY(mutex_);  ///< steady clock; while not busy_
  std::optional<absl::Duration> writing_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
