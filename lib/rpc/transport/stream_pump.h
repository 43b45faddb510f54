#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lib/base/caller.h"
#include "lib/base/mutex.h"
#include "lib/rpc/transport/stream_registry.h"
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

namespace troupe::rpc {

/// The half of a server's stream that all have in common: it reads one message at a time, writes one at a time, and
/// finishes once. A shell for what derives from it, which says what a message means and what is written next.
///
/// Made by the derived class, owned by itself from Begin until gRPC is done with it, then by whoever still holds it.
/// End, CheckProgress and Pump are thread-safe; never blocks. Invariants: 1. A write is in flight while writing_;
/// Finish is called once, with no write in flight. 2. Whoever sets writing_ or finished_ is alone in calling gRPC after
/// the lock is released; the reactor cannot be done before that, so it is still there. 3. After OnDone no gRPC
/// operation starts. States: open -> ending (End) -> finished -> done. Capacity: the derived class's.
class StreamPump : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>, public ServedStream {
 public:
  // ServedStream
  void End(const absl::Status& status) override;

  // grpc::ServerBidiReactor
  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;

 protected:
  /// What a stream is called. Literals.
  struct Names {
    const char* stream;  ///< "rollout": of the stream, in the log
    const char* peer;    ///< "worker": of who speaks
  };
  /// `registry` outlives it.
  StreamPump(const Names& names, base::Caller caller, StreamRegistry* registry)
      : names_(names), caller_(std::move(caller)), registry_(registry) {}

  /// Registers the stream and starts reading. Once; `self` owns `this`.
  void Begin(const std::shared_ptr<StreamPump>& self);
  /// There may be something to write.
  void Pump();
  const base::Caller& caller() const { return caller_; }
  /// The status that ends a stream whose peer is gone.
  absl::Status PeerIsGone() const;

  /// A message to be written.
  struct Message {
    grpc::ByteBuffer bytes;
    /// Where making them takes long: what makes them instead, outside the lock.
    std::function<grpc::ByteBuffer()> encode = nullptr;
  };
  /// What to write next; nullopt: nothing for now, and a stream that is ending finishes.
  virtual std::optional<Message> NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  /// One message, in the read reaction. The status that ends the stream, or OK to write what
  /// it asked for and read on.
  virtual absl::Status HandleMessage(const grpc::ByteBuffer& bytes) = 0;
  /// The peer has half-closed, or is gone.
  virtual void OnReadsOver() = 0;
  /// A write failed: the call is ending.
  virtual void OnWriteFailed() {}
  /// gRPC is done with the stream.
  virtual void OnOver() = 0;

  /// End has been called: nothing new is to be taken in.
  bool EndingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_requested_; }
  /// As End, without the Pump that has to follow.
  void RequestEndLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const absl::Status& EndStatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_status_; }

  base::Mutex mutex_;  ///< of all fields, the derived class's, too, that are not confined to a reaction

 private:
  const Names names_;
  const base::Caller caller_;
  StreamRegistry* const registry_;
  std::shared_ptr<StreamPump> self_;  ///< until OnDone
  grpc::ByteBuffer incoming_;         ///< confined to the read reaction

  bool peer_gone_ ABSL_GUARDED_BY(mutex_) = false;  ///< nothing is written any more
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool end_requested_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer outgoing_;  ///< in flight while writing_; changed only by who set writing_
};

}  // namespace troupe::rpc
