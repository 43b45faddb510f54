#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "lib/rpc/codec/fragment_codec.h"
#include "lib/sample/grant.h"
#include <grpcpp/support/byte_buffer.h>

namespace troupe::rpc {

/// What the learner answered, since the start. Fragments.
struct AckCounters {
  int64_t accepted = 0;
  int64_t duplicate = 0;
  int64_t stale = 0;
  int64_t invalid = 0;
  std::string last_reason;  ///< of the newest that was not accepted
};

/// The fragments that a worker has handed in and that no learner has acknowledged: what is sent next, what is sent
/// again after a reconnect, and how much more may be handed in. A passive part of RolloutSession.
///
/// Not thread-safe: WorkerClient holds its mutex. Never blocks. What is freed is given back, so that it can be
/// destroyed outside the lock: a fragment's buffer goes back to its pool. Invariants: 1. Sequence numbers are given
/// once each, 1, 2, 3, ..., and held ascending. 2. What has been sent on this stream comes before what has not.
/// Capacity: the credit in payload bytes, kMaxUnackedFragments and kMaxUnackedBytes; one fragment always fits (see
/// Fits).
class RetainedFragments {
 public:
  using Freed = std::vector<EncodedFragment>;

  /// Of the next fragment.
  uint64_t next_sequence() const { return next_sequence_; }
  /// The lowest that is held; next_sequence() when none is.
  uint64_t first_unacked() const { return held_.empty() ? next_sequence_ : held_.front().sequence; }
  bool empty() const { return held_.empty(); }
  size_t size() const { return held_.size(); }
  const AckCounters& acks() const { return acks_; }

  /// What the learner lets be without an ack, in bytes of payload; kMaxUnackedBytes whatever is above.
  void SetCredit(uint64_t credit_bytes);
  int64_t credit_bytes() const { return credit_bytes_; }
  /// Whether there is credit and room for one fragment more.
  bool Fits(const EncodedFragment& encoded) const;
  /// Takes a fragment that was encoded as next_sequence().
  void Add(const EncodedFragment& encoded);

  /// Another stream: everything that is held is sent again, in order.
  void SendAgain() { next_to_send_ = 0; }
  bool has_unsent() const { return next_to_send_ < held_.size(); }
  /// The first that was not sent on this stream; there is one.
  grpc::ByteBuffer Send() { return held_[next_to_send_++].encoded.message; }

  /// Every number up to `watermark` has its disposition.
  Freed FreeUpTo(uint64_t watermark);
  /// Counts the ack, and frees what its watermark covers and what it is for.
  Freed OnAck(const sample::FragmentAck& ack);

 private:
  struct Held {
    uint64_t sequence;
    EncodedFragment encoded;
  };
  void Forget(size_t place);

  uint64_t next_sequence_ = 1;
  std::deque<Held> held_;      ///< without an ack, ascending
  size_t next_to_send_ = 0;    ///< in held_
  int64_t unacked_bytes_ = 0;  ///< of payload: what credit counts
  int64_t held_bytes_ = 0;     ///< of all of held_
  int64_t credit_bytes_ = 0;
  AckCounters acks_;
};

}  // namespace troupe::rpc
