#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/policy/ids.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/sample/column_sets.h"
#include "lib/space/space.h"

namespace troupe::learner {

/// A borrowed [rows, columns] float matrix that networks read; row r begins at data + r * stride.
///
/// A *padded* one can be read by the kernels where it lies: rows begin on a cache line, `stride` is
/// PaddedStride(columns), and the columns from `columns` to `stride` are zero. The assembler makes no others. A dense
/// one (stride == columns), as tests write it by hand, is right, too; a trainer copies it.
struct RowMatrix {
  static constexpr int64_t kLineElements = 16;

  static constexpr int64_t PaddedStride(int64_t columns) {
    return (columns + kLineElements - 1) / kLineElements * kLineElements;
  }

  const float* row(int64_t r) const { return data + r * stride; }
  bool padded() const {
    return stride == PaddedStride(columns) && reinterpret_cast<uintptr_t>(data) % (kLineElements * sizeof(float)) == 0;
  }
  /// Rows [first, first + count).
  RowMatrix Rows(int64_t first, int64_t count) const { return {data + first * stride, count, columns, stride}; }

  const float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

/// A borrowed [rows, columns] matrix of bytes, row after row.
struct ByteMatrix {
  const uint8_t* row(int64_t r) const { return data + r * columns; }

  const uint8_t* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
};

/// The owner's leave to normalize a policy's observations where they lie, and what became of it. What was normalized
/// cannot be had back, so that this says with which moments it was done: whoever comes again (an update that failed and
/// is tried again) finds the numbers that it wants, or an error. Owned with the memory; written by the policy's
/// trainer.
struct InPlaceObservations {
  float* data = nullptr;                 ///< the rows of obs, then those of final_obs
  bool normalized = false;               ///< else all are as observed
  policy::RunningMoments with = {};      ///< what they were normalized with
  policy::RunningMoments observed = {};  ///< of the active rows before that
};

/// An agent at a joint step.
struct JointEntry {
  base::AgentSlot slot;
  policy::PolicySlot policy;  ///< whose row it is
  int32_t row = -1;           ///< of the policy's rows: the agent acted here; -1: see final_row
  int32_t final_row = -1;     ///< of the policy's final rows: a segment of the agent is bootstrapped from here
};

/// A step of an episode at which the batch has a row or a final row of at least one agent.
struct JointStep {
  base::EnvId env_id;
  uint32_t episode = 0;
  int32_t step = 0;
  /// The joint step that follows in the episode; -1: none does, or it is not known what was between: its step is not
  /// the next, and no transition of the batch (from an agent's row to its next one, or to its final row) leads over the
  /// gap.
  int32_t next = -1;
  int32_t state_row = -1;  ///< of JointSteps::state; -1: the environment has no state of its own, or it was not sent
  int32_t first_entry = 0;
  int32_t num_entries = 0;  ///< at least 1
};

/// Where a row stands among the joint steps.
struct JointPlace {
  int32_t step = 0;   ///< of JointSteps::steps
  int32_t entry = 0;  ///< of JointSteps::entries
};

/// The rows of all policies by the step at which they happened, for trainers of learn groups that join agents (mixers,
/// critics of joint actions). An agent that did not act, or whose row was too old or left out, has no entry; what that
/// means is the group's to say. An agent has two entries at a step where a segment of it ends and another begins.
struct JointSteps {
  std::vector<JointStep> steps;     ///< ascending (env id, episode, step)
  std::vector<JointEntry> entries;  ///< by step; there ascending by slot, an agent's row before its final row
  RowMatrix state;                  ///< [as many as have one, env_state_size], padded
};

/// Consecutive rows of one agent's trajectory.
struct TrainSegment {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t final_row = -1;  ///< row of final_obs to bootstrap from; -1: terminated, value 0
  base::EnvId env_id;
  uint32_t episode = 0;
  base::AgentSlot slot;
  bool truncated = false;  ///< a limit ended it; else one with a final row was cut, and goes on in a later batch
  bool trains = true;      ///< false: policies_to_train leaves the trajectory out; the agent mask of its rows is 0, too

  bool goes_on() const { return final_row >= 0 && !truncated; }
};

/// Consecutive rows of one segment that networks that remember read one after another, and are differentiated through.
/// One begins at each segment's first row and at each decision of an episode that is a multiple of
/// PolicySpec::sequence_length: how fragments were cut within the batch, and by how many workers, changes none.
struct TrainSequence {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t decision = 0;  ///< of the first row: how many its agent made before in the episode

  bool operator==(const TrainSequence& other) const = default;
};

/// The rows of one policy, gathered so that every segment is contiguous and in time order; segments ascend by (env id,
/// episode, slot). Spans are borrowed from the assembler's buffers and valid until it assembles again.
///
/// Who may write: nobody, but the policy's trainer the observation columns of `obs` and `final_obs` where `in_place`
/// stands, under its rules. What several policies read (a joint observation, the state of an env step) is never written
/// again: it is made of observations as they came.
struct PolicyTrainBatch {
  policy::PolicySlot policy;
  int64_t rows = 0;
  int64_t final_rows = 0;
  bool train = true;  ///< false: the update leaves the policy as it is; its rows are for counting and joint critics

  /// [rows, observation_size], or [rows, observation_size + agent_id_size] with the one-hot of the row's agent slot:
  /// what an actor reads, but for the normalization. The assembler gives the latter, with final_obs right after its
  /// rows.
  RowMatrix obs;
  RowMatrix final_obs;  ///< [final_rows, as obs]
  /// Of a policy whose images stay bytes (policy::PolicySpec::image_bytes), else empty: [rows, observation_size]. Then
  /// `obs` has the other columns alone, the one-hot's or none. The assembler gives final_images right after its rows.
  ByteMatrix images;
  ByteMatrix final_images;                      ///< [final_rows, observation_size]
  InPlaceObservations* in_place = nullptr;      ///< nullptr: they stay as they are
  absl::Span<const space::ActionWord> actions;  ///< [rows, action_words]
  absl::Span<const float> action_logp;          ///< [rows]
  absl::Span<const float> rewards;              ///< [rows], after common_reward
  /// [rows], env steps from each decision to what follows it: its agent's next row in the segment, or the segment's
  /// final row; 1 of the last row of a segment without one. Of a policy whose rewards are discounted within waits
  /// (policy::PolicySpec::reward_discount), else empty.
  absl::Span<const int32_t> waits;
  absl::Span<const uint8_t> action_mask;        ///< [rows, mask_size] or empty
  absl::Span<const uint8_t> agent_mask;         ///< [rows] or empty (all active); 0: not for losses (RowUses)
  absl::Span<const int32_t> slot;               ///< [rows], agent slot (for the one-hot)
  absl::Span<const int32_t> critic_row;         ///< [rows], row of critic_state; empty for NetworkInput::kObservation
  absl::Span<const uint8_t> final_action_mask;  ///< [final_rows, mask_size] or empty
  absl::Span<const int32_t> final_slot;         ///< [final_rows]
  absl::Span<const int32_t> final_critic_row;   ///< [final_rows]
  /// [critic_rows, critic_state_size]: joint observations (with presence bits) or global states; several rows may point
  /// at one. Where each row has a state of its own and the critic sees the one-hot of agent slots right behind it, that
  /// follows in agent_id_size more columns.
  RowMatrix critic_state;
  int64_t critic_rows = 0;
  /// Of a critic that convolves all agents' images of bytes (policy::PolicySpec::ByteElements), else empty:
  /// [critic_rows, agents x observation_size], one after another in slots' order, zeros of who is not there. Then
  /// critic_state has the presence bits alone.
  ByteMatrix critic_images;
  /// Of joint observations: by agent slot, the elements of its observation in critic_state, one after another; behind
  /// them lies a presence bit for each. Else empty.
  absl::Span<const int64_t> joint_sizes;
  absl::Span<const JointPlace> joint_place;        ///< [rows], where the row stands in TrainBatch::joint; or empty
  absl::Span<const JointPlace> final_joint_place;  ///< [final_rows], or empty
  /// Every column that is gathered as it is (sample::Gathering), those above among them: one that the table has and
  /// nobody has named here is found under its own name.
  sample::PolicyColumnSet<sample::ColumnView> columns;
  std::vector<TrainSegment> segments;
  std::vector<TrainSequence> sequences;  ///< of a policy that remembers: all rows, ascending
  RowMatrix memory;  ///< [sequences, actor_state_size], padded: what the actor remembered before each; or empty
};

/// What one update trains on.
struct TrainBatch {
  int64_t env_steps = 0;
  int64_t agent_steps = 0;
  std::vector<PolicyTrainBatch> policies;  ///< ascending policy slot
  const JointSteps* joint = nullptr;       ///< nullptr: nobody asked for it
};

}  // namespace troupe::learner
