#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/rpc/codec/table_codec.h"
#include "lib/rpc/transport/slices.h"
#include "proto/troupe/v1/weights.pb.h"
#include <grpcpp/support/byte_buffer.h>

namespace troupe::rpc {

/// Published weights of the policy in a slot, in their wire form: encoded when the first subscriber is about to get
/// them, once for all. Parameters are borrowed from the snapshot, which it keeps alive. Thread-safe.
class PublishedWeights {
 public:
  /// `since`: PolicyEntry::since of the policy.
  PublishedWeights(policy::PolicySlot slot, int64_t since, policy::WeightSnapshotPtr snapshot)
      : slot_(slot), since_(since), snapshot_(std::move(snapshot)) {}

  policy::PolicySlot slot() const { return slot_; }
  const policy::WeightVersion& version() const { return snapshot_->version; }
  /// The messages, in order. The first call encodes: one pass over the parameters.
  const std::vector<grpc::ByteBuffer>& Chunks() const;
  /// Whether it replaces `other`: of a later policy in the slot, or of a later version.
  bool IsNewerThan(const PublishedWeights& other) const {
    return since_ != other.since_ ? since_ > other.since_ : other.version() < version();
  }

 private:
  void Encode() const;

  const policy::PolicySlot slot_;
  const int64_t since_;
  const policy::WeightSnapshotPtr snapshot_;
  mutable std::once_flag once_;
  mutable std::vector<grpc::ByteBuffer> chunks_;  ///< written under once_
};
using PublishedWeightsPtr = std::shared_ptr<const PublishedWeights>;

/// "What was wanted as of request `number` has been sent and is the newest as of `version`."
grpc::ByteBuffer EncodeAnnouncement(policy::WeightVersion version, uint64_t number);

/// What a receiver expects in each slot; a free one has an empty id. Plain value.
struct SlotPolicies {
  policy::BySlot<policy::PolicySpec> specs;
  policy::BySlot<int64_t> since;

  explicit SlotPolicies(const policy::BySlot<policy::PolicySpec>& at_start);
  explicit SlotPolicies(const policy::PolicyTable& table);
  ~SlotPolicies();
  /// Whether the slot has the same policy in both.
  bool SameIn(const SlotPolicies& other, policy::PolicySlot slot) const;
};
using SlotPoliciesPtr = std::shared_ptr<const SlotPolicies>;

/// Puts the chunks of one subscription together. Used by one thread.
class WeightAssembler {
 public:
  explicit WeightAssembler(SlotPoliciesPtr policies) : policies_(std::move(policies)) {}
  /// Of a subscription that asks for the policies: what is expected in each slot is what the last table says.
  static WeightAssembler WithPolicies();

  /// What is expected from now on. What is being received goes on, unless its slot has another policy now.
  void SetPolicies(SlotPoliciesPtr policies);

  struct Update {
    policy::PolicySlot slot;
    policy::WeightSnapshotPtr snapshot;  ///< nullptr: an announcement of what follows
    policy::WeightVersion version;
    uint64_t number = 0;
    policy::PolicyTablePtr policies = nullptr;  ///< not nullptr: a table, and nothing else
  };
  /// The next message: a finished, validated snapshot, an announcement, or a table; nullopt after a chunk that is not
  /// the last, and for weights of a policy that is not the slot's (an older or a newer table's: they are dropped).
  /// INVALID_ARGUMENT for another size, policy or order than expected (checked before memory is taken) and for numbers
  /// that are not finite; DATA_LOSS for a bad checksum; FAILED_PRECONDITION for weights before the table that was asked
  /// for.
  absl::StatusOr<std::optional<Update>> Add(const grpc::ByteBuffer& message);

 private:
  absl::Status Begin(const v1::WeightUpdate& header);
  /// ParameterLayout::acting_size of the slot's policy.
  int64_t ActingSize(policy::PolicySlot slot);
  absl::StatusOr<Update> Finish();
  absl::StatusOr<std::optional<Update>> AddPolicies(const v1::PolicyTable& chunk);

  SlotPoliciesPtr policies_;
  std::optional<TableAssembler> tables_;               ///< nullopt: none was asked for
  std::unordered_map<int32_t, int64_t> acting_sizes_;  ///< by slot of policies_, once asked for: a layout is many names
  v1::WeightUpdate header_;                            ///< of the snapshot that is being received
  bool dropping_ = false;                              ///< it is not wanted
  std::vector<float> whole_;
  size_t received_bytes_ = 0;
};

}  // namespace troupe::rpc
