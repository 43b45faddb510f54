#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/tensor/buffer.h"
#include "lib/training/core/row_units.h"
#include "lib/training/core/row_uses.h"
#include "lib/training/core/state_moments.h"
#include "lib/training/core/thread_team.h"

namespace troupe::training {

/// A borrowed [rows, columns] float matrix whose rows start `stride` elements apart, each on a cache line. What lies
/// between the columns and the stride may be read, but is no input: zeros, or a one-hot that this network does not see.
struct MatrixView {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

/// What an algorithm asks of a batch, beside the policy's spec. Plain value.
struct PrepareOptions {
  bool use_policy_active_masks = true;  ///< dead agents' rows do not count in the policy's loss (RowUses)
  bool use_value_active_masks = true;   ///< nor in the critic's
  /// What the critic reads of a dead agent is zeros, and the one-hot of its slot where it reads that (Yu et al. 2022,
  /// death masking). A final row is a dead agent's where the last row of its segment is.
  bool death_masking = false;
  /// Of a policy with normalize_state, during the call; nullptr: those of before any data.
  const ColumnMoments* state_moments = nullptr;
  MinibatchBy minibatch_by = MinibatchBy::kRows;
  /// The actor reads final observations, too: observations() has them whatever the critic reads.
  bool final_observations = false;
};

/// INVALID_ARGUMENT, naming the option, for PrepareOptions::death_masking of a policy whose critic reads images of
/// bytes or shares the actor's encoder.
absl::Status CheckDeathMasking(const policy::PolicySpec& spec);
/// INVALID_ARGUMENT, naming the option, for MinibatchBy::kEnvSteps of a policy that remembers: its minibatches are of
/// whole sequences.
absl::Status CheckMinibatchBy(const policy::PolicySpec& spec, MinibatchBy minibatch_by);

/// The numbers that an on-policy loss compares rows with, [rows] each. Plain value.
struct RowTargets {
  std::vector<float> advantages;
  std::vector<float> value_targets;  ///< in the critic's units
  std::vector<float> old_values;     ///< in the critic's units
  std::vector<float> old_logp;       ///< what PreparedBatch::old_logp is where a loss has another policy's
  /// [sequences, state size] of a critic that remembers by itself: what it remembered before each.
  std::vector<float> critic_memory;
};

/// One policy's train batch in the form in which networks and losses read it. Reused from update to update; owned by
/// the update thread.
///
/// The critic's inputs are a table of their own, because rows may share a joint observation or state: row r's is
/// critic_input[critic_index[r]], final row f's is critic_input[final_critic_index[f]].
///
/// Inputs stay where the assembler laid them (padded, learner::RowMatrix): observations are normalized there, once,
/// with the batch's leave (learner::InPlaceObservations). Actor and critic read the same rows where both read the
/// agent's observation. What is copied, into memory of this: matrices of a batch that are not padded, or observations
/// to be normalized without leave (batches written by hand); states that several agents read, each with the observation
/// or the one-hot of its own behind them (use_agent_specific_state, critic_agent_id); states that are normalized; and
/// the critic's inputs of a batch with dead agents where their place is masked.
class PreparedBatch {
 public:
  /// `allocator` is for the inputs, which a back end may copy to a device; it must outlive this.
  explicit PreparedBatch(tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable())
      : actor_buffer_(kInitialBytes, allocator),
        critic_buffer_(kInitialBytes, allocator),
        masked_buffer_(kInitialBytes, allocator),
        image_buffer_(kInitialBytes, allocator) {}

  /// Makes the inputs of `batch`: observations normalized with `observation_moments` as the workers did, one-hots
  /// appended. INVALID_ARGUMENT when a column of `batch` has a size that does not fit `spec`, or an index is out of
  /// range: then nothing was written. FAILED_PRECONDITION when it was normalized in place before, with other moments.
  /// `batch` must outlive the use of this. With `team`, its threads share the work.
  absl::Status Prepare(const policy::PolicySpec& spec, const policy::RunningMoments& observation_moments,
                       const learner::PolicyTrainBatch& batch, ThreadTeam* team = nullptr,
                       const PrepareOptions& options = {});

  int64_t rows() const { return actor_input_.rows; }
  const MatrixView& actor_input() const { return actor_input_; }
  /// actor_input(), and behind it the final rows, where the critic or PrepareOptions asks for them.
  const MatrixView& observations() const { return observations_; }
  const MatrixView& critic_input() const { return critic_input_; }
  /// The images of a policy whose images stay bytes (policy::PolicySpec::image_bytes), else without rows: [rows of
  /// observations(),
  /// observation_size]. Row r stands before row r of actor_input(), and of critic_input()
  /// where the critic reads observations, which have the other columns alone.
  const learner::ByteMatrix& images() const { return images_; }
  /// Of a critic that convolves all agents' images of bytes, else without rows: as the batch has them
  /// (learner::PolicyTrainBatch::critic_images). Before row r of critic_input(), which has the other columns alone,
  /// stands row critic_image_index()[r]; an input of zeros, which has no presence bits, has any.
  const learner::ByteMatrix& critic_images() const { return critic_images_; }
  absl::Span<const int32_t> critic_image_index() const { return critic_image_index_; }
  absl::Span<const int32_t> critic_index() const { return critic_index_; }
  absl::Span<const int32_t> final_critic_index() const { return final_critic_index_; }
  /// Of the observations of active rows as the workers sent them; only where the policy normalizes.
  const policy::RunningMoments& observed() const { return observed_; }
  /// Of the joint observations or states that active rows read, as they came; only where the policy normalizes them.
  const ColumnMoments& observed_states() const { return observed_states_; }
  /// Which rows count in which loss.
  const RowUses& uses() const { return uses_; }
  /// With MinibatchBy::kEnvSteps, where rows that count share inputs of the critic, else empty: what minibatches are
  /// cut from. By the inputs that rows read before dead agents' were masked, so that these stay with their env step; in
  /// critic_index() a unit may have several inputs then.
  const RowUnits& units() const { return units_; }
  /// Rows of agents that are active, ascending; all that count in losses but for what PrepareOptions adds.
  absl::Span<const int32_t> active() const { return uses_.active(); }
  /// Of a policy that remembers, else empty: what its networks are run through. Cover all rows, ascending.
  absl::Span<const learner::TrainSequence> sequences() const { return sequences_; }
  /// [sequences, actor_state_size], what the actor remembered before each; no columns where it does not.
  const MatrixView& actor_memory() const { return actor_memory_; }

  absl::Span<const space::ActionWord> actions;  ///< [rows, action_words]
  absl::Span<const float> old_logp;             ///< [rows], by the policy that acted
  absl::Span<const uint8_t> action_mask;        ///< [rows, mask_size] or empty

  RowTargets targets;  ///< set by the trainer after the critic has spoken

 private:
  static constexpr size_t kInitialBytes = 64;

  absl::Status CheckSizes(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                          const PrepareOptions& options) const;
  static absl::Status CheckSegments(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch);
  static absl::Status CheckSequences(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch);
  static absl::Status CheckImages(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                                  const PrepareOptions& options);
  static absl::Status CheckJointSizes(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch);
  /// Observations of all rows and of `finals` final ones.
  absl::Status TakeObservations(const policy::PolicySpec& spec, const policy::RunningMoments& moments,
                                const learner::PolicyTrainBatch& batch, int64_t finals, ThreadTeam* team);
  void TakeStates(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch, const PrepareOptions& options,
                  ThreadTeam* team);
  /// An input per row, the final rows after the others: a state, and what is the agent's own behind it.
  void TakeOwnStates(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                     const StateNormalizer* normalizer, ThreadTeam* team);
  /// Images of all rows and of `finals` final ones, where the batch has some.
  void TakeImages(const learner::PolicyTrainBatch& batch, int64_t finals, ThreadTeam* team);
  /// Points the rows of dead agents at inputs of zeros.
  void MaskTheDead(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch);
  /// Row r's critic input is r, final row f's is rows + f.
  void IndexByRow(const learner::PolicyTrainBatch& batch);
  /// Grows `buffer` for a matrix and returns its rows.
  static float* Resize(tensor::Buffer* buffer, int64_t rows, int64_t columns, MatrixView* view);

  tensor::Buffer actor_buffer_;
  tensor::Buffer critic_buffer_;
  tensor::Buffer masked_buffer_;
  tensor::Buffer image_buffer_;
  MatrixView observations_;  ///< the actor's rows, and the final rows of a critic that reads observations
  learner::ByteMatrix images_, critic_images_;
  std::vector<int32_t> critic_image_index_;
  MatrixView actor_input_;
  MatrixView critic_input_;
  absl::Span<const int32_t> critic_index_;
  absl::Span<const int32_t> final_critic_index_;
  std::vector<int32_t> ascending_;
  std::vector<int32_t> masked_index_, masked_final_index_;
  policy::RunningMoments observed_;
  ColumnMoments observed_states_;
  RowUses uses_;
  RowUnits units_;
  absl::Span<const learner::TrainSequence> sequences_;
  MatrixView actor_memory_;
};

/// The actor's view of an observation element: clip((value - mean) * inverse_std, -10, 10), with inverse_std as
/// WeightSnapshot publishes it. One function for both, so that training and inference see the same numbers.
std::vector<float> InverseStd(const policy::RunningMoments& moments);
std::vector<float> Mean(const policy::RunningMoments& moments);

}  // namespace troupe::training
