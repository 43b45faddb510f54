#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/rpc/slices.h"
#include "proto/troupe/v1/weights.pb.h"
#include <grpcpp/support/byte_buffer.h>

namespace troupe::rpc {

/// A snapshot in its wire form, made once for all subscribers: its chunks in order. Immutable; thread-safe. Parameters
/// are borrowed from the snapshot, which it keeps alive.
struct EncodedWeights {
  policy::WeightVersion version;
  std::vector<grpc::ByteBuffer> chunks;
};
using EncodedWeightsPtr = std::shared_ptr<const EncodedWeights>;

EncodedWeightsPtr EncodeWeights(policy::PolicySlot slot, const policy::WeightSnapshotPtr& snapshot);

/// Puts the chunks of one subscription together. Used by one thread.
class WeightAssembler {
 public:
  /// What to expect, by policy slot.
  explicit WeightAssembler(std::vector<policy::PolicySpec> policies) : policies_(std::move(policies)) {}

  struct Update {
    policy::PolicySlot slot;
    policy::WeightSnapshotPtr snapshot;
  };
  /// The next message: a finished, validated snapshot, or nullopt after a chunk that is not the last. INVALID_ARGUMENT
  /// for another size, policy or order than expected (checked before memory is taken) and for numbers that are not
  /// finite; DATA_LOSS for a bad checksum.
  absl::StatusOr<std::optional<Update>> Add(const grpc::ByteBuffer& message);

 private:
  absl::Status Begin(const v1::WeightUpdate& header);
  absl::StatusOr<Update> Finish();

  const std::vector<policy::PolicySpec> policies_;
  v1::WeightUpdate header_;  ///< of the snapshot that is being received
  std::vector<float> whole_;
  size_t received_bytes_ = 0;
};

}  // namespace troupe::rpc
