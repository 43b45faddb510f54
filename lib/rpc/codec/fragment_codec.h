#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/rpc/transport/buffer_pool.h"
#include "lib/rpc/transport/slices.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/batch_schema.h"
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
  FragmentDecoder(sample::BatchSchema schema, sample::BatchLimits limits, BufferPool* pool)
      : limits_(limits), pool_(pool), schema_(std::make_shared<const sample::BatchSchema>(std::move(schema))) {}

  /// The policies from now on; rows of those that are gone are let through (sample::BatchSchema::policies_since).
  void SetPolicies(const policy::PolicyTable& policies);

  /// `split` and `list` are the message's. INVALID_ARGUMENT: says what, got, expected; DATA_LOSS: bad checksum.
  absl::StatusOr<sample::MultiAgentBatchPtr> Decode(const v1::Fragment& header, const SplitMessage& split,
                                                    const SliceList& list) const;

  std::shared_ptr<const sample::BatchSchema> schema() const;

 private:
  const sample::BatchLimits limits_;
  BufferPool* const pool_;
  mutable base::Mutex mutex_;
  std::shared_ptr<const sample::BatchSchema> schema_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
