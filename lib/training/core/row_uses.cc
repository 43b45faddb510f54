#include "lib/training/core/row_uses.h"

#include <algorithm>

namespace troupe::training {

void RowUses::Take(const learner::PolicyTrainBatch& batch, bool policy_masks, bool value_masks) {
  mask_ = batch.agent_mask;
  policy_masks_ = policy_masks || mask_.empty();
  value_masks_ = value_masks || mask_.empty();
  active_.clear();
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (IsActive(row)) active_.push_back(static_cast<int32_t>(row));
  }
  trained_.clear();
  trained_mask_ = {};
  if (policy_masks_ && value_masks_) return;
  trained_mask_memory_.assign(static_cast<size_t>(batch.rows), 1);
  for (const learner::TrainSegment& segment : batch.segments) {
    if (!segment.trains) std::fill_n(trained_mask_memory_.begin() + segment.first_row, segment.rows, uint8_t{0});
  }
  trained_mask_ = trained_mask_memory_;
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (IsSet(trained_mask_, row)) trained_.push_back(static_cast<int32_t>(row));
  }
}

}  // namespace troupe::training
