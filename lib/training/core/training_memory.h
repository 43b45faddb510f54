#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "lib/tensor/buffer.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/core/thread_team.h"

namespace troupe::training {

/// What a thread that trains works in: memory that is used again from update to update and from group to group, and of
/// no policy. Owned by the TrainerHost, one for each of its threads.
class TrainingMemory {
 public:
  /// `allocator` as PreparedBatch has it. `team`: whose threads an update shares where it has all of them; nullptr:
  /// there is none. Both outlive this.
  explicit TrainingMemory(tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable(),
                          ThreadTeam* team = nullptr)
      : allocator_(allocator), team_(team) {}

  /// The batch of the group's member `index`. References stay.
  PreparedBatch& prepared(size_t index = 0) {
    while (prepared_.size() <= index) prepared_.emplace_back(allocator_);
    return prepared_[index];
  }
  ThreadTeam* team() const { return team_; }

  std::vector<int32_t> order;  ///< of rows in an epoch

 private:
  tensor::TensorAllocator& allocator_;
  ThreadTeam* const team_;
  std::deque<PreparedBatch> prepared_;
};

}  // namespace troupe::training
