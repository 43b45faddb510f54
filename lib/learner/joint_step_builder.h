#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/learner/train_batch.h"
#include "lib/sample/batch_fwd.h"
#include "lib/tensor/buffer.h"

namespace troupe::learner {

/// An env row of a fragment, for sorting.
struct StepRef {
  base::EnvId env_id;
  uint32_t episode;
  int32_t step;
  int32_t fragment;
  int32_t row;
  bool looked_at;  ///< only to bootstrap
};

/// Makes TrainBatch::joint out of what the assembler knows: its rows, and the global step (place among the distinct
/// steps of all fragments, in order) of each. Owned by the assembler; keeps its memory from batch to batch. Not
/// thread-safe.
class JointStepBuilder {
 public:
  /// The rows of one policy.
  struct Part {
    PolicyTrainBatch* rows;                ///< gets joint_place and final_joint_place
    absl::Span<const int32_t> step;        ///< [rows], global step
    absl::Span<const int32_t> final_step;  ///< [final_rows]
  };

  /// `allocator` is for the states; it must outlive this.
  explicit JointStepBuilder(tensor::TensorAllocator& allocator) : state_(0, allocator) {}

  /// `parts` ascend by policy slot; `global_steps` say where each step's state lies in `fragments`, [state_size] floats
  /// where the environment has one. Valid until the next call.
  const JointSteps& Build(absl::Span<const Part> parts, absl::Span<const StepRef> global_steps,
                          absl::Span<const sample::MultiAgentBatchPtr> fragments, int64_t state_size);

 private:
  struct Places {
    std::vector<JointPlace> rows;
    std::vector<JointPlace> final_rows;
  };

  void AddEntries(absl::Span<const Part> parts, size_t num_global_steps);
  void PointBack(absl::Span<const Part> parts);
  void Connect(absl::Span<const Part> parts);
  void GatherStates(absl::Span<const StepRef> global_steps, absl::Span<const sample::MultiAgentBatchPtr> fragments,
                    int64_t state_size);

  JointSteps joint_;
  std::vector<int32_t> step_of_;  ///< by global step: joint step, -1: nobody's
  std::vector<int32_t> global_;   ///< by joint step
  std::vector<int32_t> bridges_;  ///< by joint step: transitions that begin here, less those that end here
  std::vector<Places> places_;    ///< by part
  tensor::Buffer state_;
};

}  // namespace troupe::learner
