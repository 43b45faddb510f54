#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/learner/accounting.h"
#include "lib/learner/column_gather.h"
#include "lib/learner/feed.h"
#include "lib/learner/joint_step_builder.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/row_ages.h"
#include "lib/learner/sequences.h"
#include "lib/learner/step_index.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/batch_schema.h"
#include "lib/sample/episode_entries.h"
#include "lib/sample/train_rules.h"
#include "lib/space/row_scaling.h"
#include "lib/tensor/buffer.h"

namespace troupe::learner {

/// What one assembly made.
struct Assembly {
  TrainBatch batch;
  // Rows by policy, ascending; policies without such rows are left out.
  std::vector<PolicyRowCount> trained;   ///< in the batch
  std::vector<PolicyRowCount> waited;    ///< of `trained`: older than max_policy_lag, as their outcome came so late
  std::vector<PolicyRowCount> aged;      ///< dropped: made with weights older than max_policy_lag allows
  std::vector<PolicyRowCount> replaced;  ///< dropped: of a policy that was replaced
  RowAges waited_ages = {};              ///< of `waited`
  double mean_lag = 0;  ///< of the rows in the batch: updates of their feed since the version they were made with
};

/// Makes the train batch of an iteration from its fragments: gathers the rows of each policy by segment, with one copy,
/// into buffers that it keeps for the next time. Matrices have the form in which networks read them (RowMatrix), so
/// that nobody copies them again.
///
/// The order is (env id, episode, slot, step), whatever the order of arrival. A segment that was cut by the end of a
/// fragment is joined to the one that goes on where it stopped, if that is in the same batch; its final row is dropped
/// then. Rows that are more than max_policy_lag updates older than the batch are left out and counted, but those that
/// waited for their outcome (kSegmentWaited), which are trained on and counted. Segments of a policy that remembers are
/// joined only where the agent's decisions go on, too, as an honest worker's do: so no sequence is longer than
/// sequence_length.
///
/// Critic rows. Joint observations: one row for each env step at which agents acted, in order, holding the observations
/// of those that acted; then one for each env step that segments bootstrap from, which holds the final observations as
/// well. Per-env states: one row an env step. Rows of a policy point at them; those it does not need are left out.
/// Per-agent states: a row each, final rows after the others.
///
/// Trajectories that the rules of policies_to_train leave out get agent mask 0, after they were counted as agent steps:
/// joint critics see them, losses do not. A rule is asked once per trajectory and batch, with all agents that its
/// episode has had up to the batch's end; a policy without a trajectory to train on does not train.
///
/// Numbers of uint8 Boxes become floats as networks read them (policy::PolicySpec::observation_scaling), but images
/// that a CNN reads: they stay bytes (1 byte an element, and room for an eighth more), in joint observations that a CNN
/// reads, too.
///
/// Memory, by row of a policy: 4 bytes for each column of its observation and one-hot, rounded up to a cache line; by
/// critic row the same of its state (simple_spread with joint critics: 128 and 256 bytes). Buffers have room for a
/// quarter more than was needed when they grew.
///
/// Not thread-safe; used by the update thread.
class Assembler {
 public:
  struct Options {
    CommonReward common_reward = CommonReward::kNone;
    int64_t max_policy_lag = 0;
    std::vector<bool> trains = {};  ///< by policy slot, PolicyTrainBatch::train; empty: all of a trainable class
    sample::TrainRules rules = {};  ///< on which trajectories; bound here to the schema's policies
    bool joint_steps = false;       ///< whether TrainBatch::joint is made
  };

  /// INVALID_ARGUMENT when the schema's sizes do not fit a policy's critic input.
  static absl::Status CheckSchema(const sample::BatchSchema& schema);

  /// `allocator` must outlive it; `schema` is checked.
  Assembler(sample::BatchSchema schema, Options options,
            tensor::TensorAllocator& allocator = tensor::TensorAllocator::Pageable());

  /// The policies from the next Assemble on: its slots instead of the schema's, its `trains` instead of the options'.
  /// Rows of one that was replaced are dropped. Memory of slots that are free is given back, and the last result is no
  /// longer valid. No fragment that is still to be assembled may have rows of a free slot.
  void SetPolicies(const policy::PolicyTable& table);

  /// Options::max_policy_lag from the next Assemble on.
  void SetMaxLag(int64_t max_policy_lag) { options_.max_policy_lag = max_policy_lag; }

  /// Whether TrainBatch::joint is made from the next Assemble on, as learn groups ask (policy::LearnGroup).
  void SetJointSteps(bool joint_steps);

  /// The update of the last result leaves the policy as it is. Its rows stay, for joint critics, and were counted.
  void LeaveAsItIs(policy::PolicySlot policy);

  /// `clock`: how old the rows are. Fragments must have passed ValidateBatch; they may be released afterwards. The
  /// result is valid until the next call.
  const Assembly& Assemble(absl::Span<const sample::MultiAgentBatchPtr> fragments, const FeedClock& clock);

 private:
  /// A segment of a fragment.
  struct SegmentRef {
    base::EnvId env_id;
    uint32_t episode;
    base::AgentSlot slot;
    int32_t first_step;
    int32_t final_step;  ///< -1: terminated
    int32_t source;      ///< index into Gather::sources
    int32_t segment;
    int32_t rows;
    int32_t final_row;  ///< in the source
    int32_t decision;   ///< of the first row; -1: the policy does not remember
    bool cut;
    bool counts;  ///< its rows were in no batch before: they are agent steps of this one
  };
  /// The rows of one policy in one fragment.
  struct Source {
    int32_t fragment;
    const sample::PolicyRows* rows;
    size_t first_segment;  ///< of this source in Gather::cursor
  };
  /// Everything about one policy: its sources, and the buffers its spans point into.
  struct Gather {
    space::RowScaling scaling;  ///< of the policy's observations
    std::vector<Source> sources;
    std::vector<SegmentRef> segments;
    std::vector<int64_t> cursor;       ///< by source and segment: row that comes next, -1: left out
    std::vector<int32_t> place;        ///< by source and row: row in the batch, -1: left out
    std::vector<int64_t> final_place;  ///< by source and segment: final row in the batch, -1: none
    std::vector<int32_t> step;         ///< by row: global step (with needs_steps_)
    std::vector<int32_t> final_step;   ///< by final row: global step (with needs_steps_)
    std::vector<MemoryRef> memories;   ///< by sequence
    ColumnGather columns;
    tensor::Buffer obs, images, actions, left_out, slot, waits, critic_row, final_slot, final_critic_row, critic_state,
        critic_images,
        memory;  ///< obs, images: final rows behind the others; left_out: an agent mask where the run has none
    InPlaceObservations in_place;
  };
  /// What follows from schema_.policies.
  void FollowSchema();
  Gather MakeGather() const;
  /// The entry of an episode in the fragments' tables.
  struct EpisodeRef {
    base::EnvId env_id;
    uint32_t episode;
    const std::vector<sample::AgentEntry>* agents;
  };
  template <typename T>
  static absl::Span<T> Reserve(tensor::Buffer& buffer, int64_t count);
  /// Room for a padded matrix; what is in it is undefined.
  static RowMatrix ReserveMatrix(tensor::Buffer& buffer, int64_t rows, int64_t columns);

  void CollectSegments(absl::Span<const sample::MultiAgentBatchPtr> fragments, const FeedClock& clock);
  /// Active rows that were in no batch before, of a policy whose rows are copied.
  static int64_t NewAgentSteps(const Gather& gather, const PolicyTrainBatch& rows);
  void LayOut(Gather& gather, PolicyTrainBatch& batch);
  /// Appends the places of the source's rows to gather.place, moves the cursors, and returns what was appended; valid
  /// until the next call.
  absl::Span<const int32_t> PlaceRows(const Source& source, Gather& gather);
  void CopyRows(Gather& gather, PolicyTrainBatch& batch);
  void CopyFinalRows(Gather& gather, PolicyTrainBatch& batch);
  /// Of a policy whose images stay bytes: room for those of all rows.
  static void ReserveImages(const policy::PolicySpec& spec, Gather& gather, PolicyTrainBatch& batch);
  /// Of a policy whose rewards are discounted within waits.
  void FillWaits(Gather& gather, PolicyTrainBatch& batch, absl::Span<const sample::MultiAgentBatchPtr> fragments);
  /// Of a policy that remembers: its sequences, and what it remembered before each.
  void GatherMemories(Gather& gather, PolicyTrainBatch& batch);
  void IndexEpisodes(absl::Span<const sample::MultiAgentBatchPtr> fragments);
  void LeaveOut(Gather& gather, PolicyTrainBatch& batch);
  void ShareRewards();
  /// Where joint observations lie, as floats or with images of bytes: whichever critics read.
  struct JointRows {
    RowMatrix floats;  ///< observations and presence bits, or these alone
    ByteMatrix images;
  };
  /// Room for rows in `buffer`, at most an eighth too much; what is in it is undefined.
  static ByteMatrix ReserveBytes(tensor::Buffer& buffer, int64_t rows, int64_t columns);
  void NumberJointRows();
  void WriteJointRows();
  void WriteJointRows(const JointRows& to);
  void BuildJointSteps(absl::Span<const sample::MultiAgentBatchPtr> fragments);
  void PointAtJointRows(Gather& gather, PolicyTrainBatch& batch);
  void GatherEnvStates(Gather& gather, PolicyTrainBatch& batch, absl::Span<const sample::MultiAgentBatchPtr> fragments);
  void GatherAgentStates(Gather& gather, PolicyTrainBatch& batch);

  sample::BatchSchema schema_;
  Options options_;
  policy::BySlot<uint8_t> trains_;    ///< empty: all of a trainable class
  policy::BySlot<uint8_t> replaced_;  ///< empty: none
  tensor::TensorAllocator& allocator_;
  std::vector<int64_t> joint_offset_;  ///< by agent slot
  int64_t joint_size_ = 0;             ///< with presence bits
  bool needs_joint_floats_ = false;
  bool needs_joint_images_ = false;
  bool needs_steps_ = false;  ///< rows of one env step have to find each other

  policy::BySlot<Gather> gathers_;
  /// With rules: ascending (env id, episode), that with the most agents first.
  std::vector<EpisodeRef> episodes_;
  Assembly assembly_;
  StepIndex global_steps_;           ///< with needs_steps_
  std::vector<int32_t> acting_row_;  ///< by global step: joint row, -1: nobody acted
  std::vector<int32_t> final_row_;   ///< by global step: joint row, -1: nobody bootstraps from it
  std::vector<double> reward_sum_;
  std::vector<int32_t> reward_count_;
  std::vector<int32_t> needed_;
  tensor::Buffer joint_, joint_images_, presence_;
  struct WrittenJointRows {
    int64_t count = 0;
    JointRows floats;    ///< in joint_
    JointRows pictures;  ///< in joint_images_ and presence_
  };
  WrittenJointRows joint_rows_;
  JointStepBuilder joint_steps_;
};

}  // namespace troupe::learner
