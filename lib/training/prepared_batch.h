#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/tensor/buffer.h"
#include "lib/training/thread_team.h"

namespace troupe::training {

/// A borrowed [rows, columns] float matrix whose rows start `stride` elements apart; the columns up to the stride are
/// zero.
struct MatrixView {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

/// One policy's train batch in the form in which networks and losses read it. Reused from update to update; owned by
/// the update thread.
///
/// The critic's inputs are a table of their own, because rows may share a joint observation or state: row r's is
/// critic_input[critic_index[r]], final row f's is critic_input[final_critic_index[f]].
class PreparedBatch {
 public:
  /// `allocator` is for the inputs, which a back end may copy to a device; it must outlive this.
  explicit PreparedBatch(tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable())
      : actor_buffer_(kInitialBytes, allocator), critic_buffer_(kInitialBytes, allocator) {}

  /// Fills the inputs from `batch`: observations normalized with `observation_moments` as the workers did, one-hots
  /// appended. INVALID_ARGUMENT when a column of `batch` has a size that does not fit `spec`, or an index is out of
  /// range. `batch` must outlive the use of this. With `team`, its threads share the work.
  absl::Status Prepare(const policy::PolicySpec& spec, const policy::RunningMoments& observation_moments,
                       const learner::PolicyTrainBatch& batch, ThreadTeam* team = nullptr);

  int64_t rows() const { return actor_input_.rows; }
  const MatrixView& actor_input() const { return actor_input_; }
  const MatrixView& critic_input() const { return critic_input_; }
  absl::Span<const int32_t> critic_index() const { return critic_index_; }
  absl::Span<const int32_t> final_critic_index() const { return final_critic_index_; }
  /// Rows that count in losses and statistics, ascending.
  absl::Span<const int32_t> active() const { return active_; }

  absl::Span<const space::ActionWord> actions;  ///< [rows, action_words]
  absl::Span<const float> old_logp;             ///< [rows]
  absl::Span<const uint8_t> action_mask;        ///< [rows, mask_size] or empty

  // Set by the trainer after the critic has spoken; [rows] each.
  std::vector<float> advantages;
  std::vector<float> value_targets;  ///< in the critic's units
  std::vector<float> old_values;     ///< in the critic's units

 private:
  static constexpr size_t kInitialBytes = 64;

  absl::Status CheckSizes(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch) const;
  void FillActorInput(const policy::PolicySpec& spec, const policy::RunningMoments& moments,
                      const learner::PolicyTrainBatch& batch);
  void FillCriticInput(const policy::PolicySpec& spec, const policy::RunningMoments& moments,
                       const learner::PolicyTrainBatch& batch);

  tensor::Buffer actor_buffer_;
  tensor::Buffer critic_buffer_;
  MatrixView actor_input_;
  MatrixView critic_input_;
  std::vector<int32_t> critic_index_;
  std::vector<int32_t> final_critic_index_;
  std::vector<int32_t> active_;
};

/// The actor's view of an observation element: clip((value - mean) * inverse_std, -10, 10), with inverse_std as
/// WeightSnapshot publishes it. One function for both, so that training and inference see the same numbers.
std::vector<float> InverseStd(const policy::RunningMoments& moments);
std::vector<float> Mean(const policy::RunningMoments& moments);

}  // namespace troupe::training
