#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/buffer_pool.h"
#include "lib/rpc/slices.h"
#include "lib/sample/batch_schema.h"
#include "lib/sample/multi_agent_batch.h"
#include "proto/troupe/v1/rollout.pb.h"
#include <grpcpp/support/byte_buffer.h>

namespace troupe::rpc {

/// A fragment in its wire form. Copies are cheap (shared slices); the columns' memory is borrowed from the batch's
/// storage, which it keeps alive.
struct EncodedFragment {
  grpc::ByteBuffer message;  ///< a whole WorkerMessage
  size_t payload_bytes = 0;  ///< what byte credit counts
};

/// WorkerMessage{fragment, payload}; each column at the next multiple of 64 bytes, CRC-32C over all. Reads every column
/// once and copies none that is larger than 1 KiB. INVALID_ARGUMENT when the columns exceed kMaxPayloadBytes: such a
/// fragment must be cut smaller.
absl::StatusOr<EncodedFragment> EncodeFragment(uint64_t sequence, const sample::MultiAgentBatchPtr& batch);

/// The header in place, as protobuf has it, with offsets assigned and everything but the checksum set.
v1::Fragment MakeFragmentHeader(uint64_t sequence, const sample::MultiAgentBatch& batch);

/// Turns received fragments into batches. Thread-safe.
///
/// Order of the checks: tables and counts, sample::ValidateShapes, columns against the payload's length; only then are
/// bytes copied (once, into a pooled buffer) and their checksum compared. Contents (finite, in range) are
/// sample::ValidateBatch's, which the learner calls.
class FragmentDecoder {
 public:
  FragmentDecoder(sample::BatchSchema schema, sample::BatchLimits limits, BufferPool* pool);

  /// Fragments may have rows of these policies from now on. Those that were made by an older table may still have rows
  /// of the policy that had a slot before: whether they are STALE is the learner's to say.
  void SetPolicies(const policy::PolicyTable& table);

  /// `split` and `list` are the message's. INVALID_ARGUMENT: says what, got, expected; DATA_LOSS: bad checksum.
  absl::StatusOr<sample::MultiAgentBatchPtr> Decode(const v1::Fragment& header, const SplitMessage& split,
                                                    const SliceList& list) const;

 private:
  /// What fragments may look like. Immutable.
  struct Shapes {
    sample::BatchSchema now;     ///< a slot that is free keeps the policy that it had
    sample::BatchSchema former;  ///< each slot with the policy before the one of `now`; that one where there was none
    std::vector<int64_t> since;  ///< by slot, of `now`
    int64_t revision = 0;
  };
  std::shared_ptr<const Shapes> shapes() const;

  const sample::BatchLimits limits_;
  BufferPool* const pool_;
  mutable base::Mutex mutex_;
  std::shared_ptr<const Shapes> shapes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
