#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "lib/base/check.h"
#include "lib/base/ids.h"
#include "lib/policy/ids.h"
#include "lib/sample/ids.h"
#include "lib/tensor/dtype.h"

namespace troupe::sample {

/// A borrowed [rows, row_elements] array, row-major and dense. Empty (data == nullptr, rows == 0) when the column is
/// absent.
struct ColumnView {
  const std::byte* data = nullptr;
  tensor::DType dtype = tensor::DType::kUnspecified;
  int64_t rows = 0;
  int64_t row_elements = 0;

  bool present() const { return dtype != tensor::DType::kUnspecified; }
  size_t bytes() const { return static_cast<size_t>(rows * row_elements) * tensor::ElementBytes(dtype); }
  /// All elements; T must be as wide as the dtype (checked).
  template <typename T>
  absl::Span<const T> As() const {
    TROUPE_CHECK(rows == 0 || sizeof(T) == tensor::ElementBytes(dtype));
    return absl::Span<const T>(reinterpret_cast<const T*>(data), static_cast<size_t>(rows * row_elements));
  }
};

/// What points from one column of a fragment into its tables: episodes, env steps (acting and final together), segments
/// of a policy. None of these has more than kMaxIndexed entries; who makes a fragment ends it before.
using Index = uint16_t;
inline constexpr int64_t kMaxIndexed = int64_t{1} << 16;

/// How an agent took part in an episode; also for policies that do not train here, so that predicates and critics can
/// see them.
struct AgentEntry {
  base::AgentSlot slot;
  policy::PolicySlot policy;  ///< who plays it in this episode
};

/// A part of one episode inside a fragment.
struct EpisodeEntry {
  base::EnvId env_id;              ///< global environment id
  uint32_t episode = 0;            ///< ordinal in that environment
  int32_t first_step = 0;          ///< env_step of the first row here
  bool continues = false;          ///< it began in an earlier fragment
  std::vector<AgentEntry> agents;  ///< agents observed so far, by slot
};

/// An episode that ended in this fragment, for metrics.
struct FinishedEpisode {
  base::EnvId env_id;
  uint32_t episode = 0;
  int32_t length = 0;  ///< env steps
  /// By agent slot, undiscounted sum of rewards; the mean of its trajectories where the agent ended and returned; NaN
  /// for agents that never appeared.
  std::vector<float> returns;
  std::vector<policy::PolicySlot> policies;  ///< by agent slot: who played it, kNoPolicy for those
  std::vector<float> infos;                ///< by EnvSpec::info_columns: mean over agents and steps; NaN when never set
  std::vector<int32_t> trajectories = {};  ///< by agent slot; empty: one each, no agent has returned
};

/// Why a segment ends. In the segments column.
enum class SegmentEnd : int32_t {
  kCut = 0,         ///< the fragment ended: continues in a later one; has a final row
  kTerminated = 1,  ///< the task ended: value 0 afterwards, no final row
  kTruncated = 2,   ///< a limit ended it: has a final row
};

/// Words of one row of PolicyRows::segments (int32).
enum SegmentField : int {
  kSegmentEpisode = 0,   ///< index into MultiAgentBatch::episodes
  kSegmentSlot = 1,      ///< agent slot
  kSegmentEnd = 2,       ///< SegmentEnd
  kSegmentFinalRow = 3,  ///< row in final_obs, or -1
  /// PolicyRows::version.n minus the version the rows were made with: > 0 only of decisions that waited, and of those
  /// that a client made by itself with older weights.
  kSegmentVersionLag = 4,
  kSegmentWaited = 5,  ///< 1: decisions of an earlier fragment, whose outcome came in this one; else 0
  kSegmentFields = 6,
};

/// Words of one row of PolicyRows::memory_at (int32).
enum MemoryField : int {
  kMemoryRow = 0,       ///< the row before whose decision it was remembered
  kMemoryDecision = 1,  ///< which decision of the agent in its episode that is, from 0
  kMemoryFields = 2,
};

/// One T for each column of a policy's rows: its view where a fragment is read, its memory where one is made. The table
/// of these columns is PolicyColumns() in columns.h; a member that is not in it does not compile.
template <typename T>
struct PolicyColumnSet {
  T obs;  ///< [rows, flat_size] float32 or uint8
  /// [rows, action_words] as sampled, before bounding: uint8 where HasByteActions, else int32 with int32 or float32
  /// words.
  T actions;
  T action_logp;  ///< [rows, 1] float32
  T rewards;      ///< [rows, 1] float32
  T action_mask;  ///< [rows, mask_size] uint8; only with a mask
  T agent_mask;   ///< [rows, 1] uint8; only when the environment has it; 0: not for losses
  T env_row;      ///< [rows, 1] Index into the env-step tables
  T segment;      ///< [rows, 1] Index into segments
  T state;        ///< [rows, state_size] float32; only for per-agent state that the policy's critic reads
  T segments;     ///< [num_segments, kSegmentFields] int32

  T final_obs;          ///< [final_rows, flat_size]: what the agent observed after the segment's last row
  T final_action_mask;  ///< [final_rows, mask_size] uint8
  T final_env_row;      ///< [final_rows, 1] Index into the env-step tables
  T final_state;        ///< [final_rows, state_size] float32; as state

  T memory;     ///< [num_memories, actor_state_size] float32: what the policy remembered; only of actors that do
  T memory_at;  ///< [num_memories, kMemoryFields] int32: when; only of policies that do
};

/// The same for the env-step tables; their table is StepColumns().
template <typename T>
struct StepColumnSet {
  T step_episode;  ///< [env_rows + final_env_rows, 1] Index into episodes
  T step_index;    ///< [env_rows + final_env_rows, 1] int32, env_step within the episode
  T state;         ///< [env_rows + final_env_rows, state_size] float32; only for per-env state that some critic reads
};

/// The rows of one policy in a fragment, time-major: the rows of one env step are contiguous, steps ascend. A row is
/// one decision of one agent: what it observed, what it did, and what came of it until its next observation.
///
/// Invariants (checked by ValidateBatch): every row belongs to exactly one segment; the rows of a segment are in time
/// order; a segment has a final row exactly when it was cut or truncated. That an agent's trajectory ended, and how, is
/// said by the end of its segment alone. A policy that remembers has a memory for each segment's first row and for each
/// row whose decision is a multiple of PolicySpec::sequence_length, and no others, ascending by row: wherever a
/// fragment was cut, the sequences that a learner trains on begin at one.
struct PolicyRows : PolicyColumnSet<ColumnView> {
  policy::PolicySlot policy;
  policy::WeightVersion version;  ///< weights that acted (all rows but those of segments with a version lag)
  int64_t rows = 0;
  int64_t num_segments = 0;
  int64_t final_rows = 0;
  int64_t num_memories = 0;
};

/// One fragment: what a worker sampled for one grant (or a part of it, at most 4 MiB on the wire). Columns are borrowed
/// from `storage`, which keeps them alive. Immutable once handed on; thread-safe to read.
struct MultiAgentBatch : StepColumnSet<ColumnView> {
  GrantId grant;
  int64_t iteration = 0;
  int64_t num_env_steps = 0;    ///< steps taken: what train_batch_size counts
  int64_t num_agent_steps = 0;  ///< rows with agent_mask 1, over all policies
  bool last_of_grant = false;
  int64_t policies_revision = 0;  ///< of the PolicyTable that the worker had
  /// Lowest revision by which an episode was mapped that the worker still has in progress, in any of its environments;
  /// policies_revision when there is none.
  int64_t oldest_revision = 0;

  std::vector<EpisodeEntry> episodes;
  std::vector<FinishedEpisode> finished;
  std::vector<PolicyRows> policies;  ///< ascending policy slot, only those with rows

  /// Rows of the env-step tables: first the `env_rows` steps at which agents acted, then the `final_env_rows` steps
  /// only looked at to bootstrap.
  int64_t env_rows = 0;
  int64_t final_env_rows = 0;

  std::shared_ptr<const void> storage;  ///< owner of the columns' memory
};
using MultiAgentBatchPtr = std::shared_ptr<const MultiAgentBatch>;

}  // namespace troupe::sample
