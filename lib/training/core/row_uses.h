#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/learner/train_batch.h"

namespace troupe::training {

/// Which rows of a policy's batch count for what. A row is *active* unless its agent mask is 0; one that is not is a
/// *dead* agent's, or of a trajectory that is not trained on (TrainSegment::trains). With a loss's active masks off
/// (use_policy_active_masks, use_value_active_masks of the MAPPO authors' code) dead rows count in it, too. Owned by a
/// PreparedBatch, reused from batch to batch; borrows of the batch.
class RowUses {
 public:
  void Take(const learner::PolicyTrainBatch& batch, bool policy_masks, bool value_masks);

  /// Rows that are active, ascending.
  absl::Span<const int32_t> active() const { return active_; }
  /// Rows that count in at least one loss: what minibatches are cut from. Ascending.
  absl::Span<const int32_t> counted() const { return policy_masks_ && value_masks_ ? active_ : trained_; }
  /// Rows that count in the critic's loss, ascending.
  absl::Span<const int32_t> in_value() const { return value_masks_ ? active_ : trained_; }

  /// Whether a row counts in one loss and not in the other.
  bool differ() const { return policy_masks_ != value_masks_; }
  bool IsActive(int64_t row) const { return IsSet(mask_, row); }
  bool IsCounted(int64_t row) const { return IsSet(policy_masks_ && value_masks_ ? mask_ : trained_mask_, row); }
  bool IsInPolicy(int64_t row) const { return IsSet(policy_masks_ ? mask_ : trained_mask_, row); }
  bool IsInValue(int64_t row) const { return IsSet(value_masks_ ? mask_ : trained_mask_, row); }

 private:
  static bool IsSet(absl::Span<const uint8_t> mask, int64_t row) {
    return mask.empty() || mask[static_cast<size_t>(row)] != 0;
  }

  bool policy_masks_ = true;  ///< also where no row is dead, so that both masks are one
  bool value_masks_ = true;
  absl::Span<const uint8_t> mask_;
  std::vector<int32_t> active_;
  // Only with a loss's masks off.
  absl::Span<const uint8_t> trained_mask_;  ///< empty: all rows are trained on
  std::vector<uint8_t> trained_mask_memory_;
  std::vector<int32_t> trained_;
};

}  // namespace troupe::training
