#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/ids.h"
#include "lib/base/mutex.h"
#include "lib/env/env_spec.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/column_sets.h"
#include "lib/sample/columns.h"
#include "lib/sample/env_sizes.h"
#include "lib/sample/episode_entries.h"
#include "lib/tensor/buffer.h"

namespace troupe::rollout {

/// What determines the columns of fragments: the environment's spec and the run's policies as they are now.
struct RolloutSchema {
  env::EnvSpec env;
  policy::BySlot<policy::PolicySpec> policies;
  bool always_sends_state = false;  ///< the global state, whether a critic reads it or not

  bool has_env_state() const { return env.state_kind == env::StateKind::kPerEnv; }
  bool has_agent_state() const { return env.state_kind == env::StateKind::kPerAgent; }
  int64_t state_size() const { return env.state_kind == env::StateKind::kNone ? 0 : env.state_space.flat_size(); }
  /// Whether fragments have the per-env state.
  bool sends_env_state() const;
  /// What the forms of columns follow from, beside the policies.
  sample::EnvSizes sizes() const {
    return {sends_env_state() ? state_size() : 0, has_agent_state() ? state_size() : 0, env.has_agent_mask,
            always_sends_state};
  }
};

/// Rows of fixed width in one growing allocation; a column of width 0 is absent. Not thread-safe.
class Column {
 public:
  Column() = default;
  explicit Column(size_t row_bytes) : row_bytes_(row_bytes) {}

  bool present() const { return row_bytes_ > 0; }
  size_t row_bytes() const { return row_bytes_; }
  std::byte* Row(int64_t row) { return buffer_.data() + static_cast<size_t>(row) * row_bytes_; }
  const std::byte* Row(int64_t row) const { return buffer_.data() + static_cast<size_t>(row) * row_bytes_; }
  template <typename T>
  T* As() {
    return reinterpret_cast<T*>(buffer_.data());
  }
  template <typename T>
  const T* As() const {
    return reinterpret_cast<const T*>(buffer_.data());
  }
  /// Room for `capacity` rows, the first `used` kept. Returns the allocation that this replaces, with its contents.
  tensor::Buffer Grow(int64_t used, int64_t capacity);
  void CopyRow(int64_t to, const void* from) { __builtin_memcpy(Row(to), from, row_bytes_); }
  sample::ColumnView View(const sample::ColumnForm& form, int64_t rows) const;

 private:
  size_t row_bytes_ = 0;
  tensor::Buffer buffer_;
};

/// Bytes of a policy's rows on the wire that are there however few they are: padding and descriptions of all columns,
/// but of those for what it remembers only where it does.
int64_t PolicyBytes(const sample::PolicyForms& forms);

/// A decision that a policy that remembers is about to make.
struct OpenDecision {
  const float* before = nullptr;  ///< what the policy remembers of its agent
  float* after = nullptr;         ///< where that goes when it has decided
  int32_t number = 0;             ///< of the agent's decisions in its episode
  bool is_sent = false;           ///< `before` becomes a memory of the fragment
};

/// The rows of one policy while a fragment is being filled: the memory of each column of the table, by its name. Rows
/// are appended by AddRow; what stands in [first_open, rows) is observed and waits for its action. Memories come in the
/// order of their rows.
class PolicyColumns : public sample::PolicyColumnSet<Column> {
 public:
  explicit PolicyColumns(const sample::PolicyForms& forms);
  PolicyColumns(const PolicyColumns&) = delete;
  PolicyColumns& operator=(const PolicyColumns&) = delete;

  const sample::PolicyForms& forms() const { return forms_; }
  /// Whether a network of the policy remembers.
  bool remembers() const { return memory_at.present(); }
  /// Whether actions are one byte a word: actors write them to open_actions.
  bool has_byte_actions() const { return has_byte_actions_; }

  /// Empties it; memory stays.
  void Clear();
  /// One more row, uninitialized. When that needs new memory, the old allocations stay readable and writable until
  /// Settle, because an environment may hold pointers into them.
  int64_t AddRow() {
    if (rows == capacity_) GrowRows();
    return rows++;
  }
  /// After an environment's call: what was written to old allocations comes into the current ones.
  void Settle() {
    if (!retired_.empty()) CopyRetired();
  }
  int32_t AddSegment(int32_t episode, base::AgentSlot slot, int32_t version_lag, bool waited = false);
  int32_t* Segment(int64_t index) { return segments.As<int32_t>() + index * sample::kSegmentFields; }
  /// A final row with the observation, mask and state of row `from`.
  int32_t AddFinalRow(int64_t from, int32_t final_env_row_index);
  /// Where actors write the actions of the open rows; CloseActions brings them into their column.
  space::ActionWord* OpenActions();
  void CloseActions();
  /// What the policy remembered before the decision of `row`, which is above those of all other memories. [state size],
  /// not read where the actor remembers nothing.
  void AddMemory(int64_t row, int32_t decision, const float* before);
  /// Brings what open_decisions say into open_memory and into the fragment. Only of a policy that remembers.
  void GatherMemory();
  /// Brings open_memory, as the actor has left it, to where open_decisions say.
  void ScatterMemory();
  /// `to` becomes a copy of what the agent saw in row `from`.
  void MoveObservation(int64_t from, int64_t to);
  /// Takes the rows listed in `holes` out with their memories, and the segments that have none left.
  void Compact();
  /// Sets the counts of `out` and its views of all columns, which are valid until the next change here. `env_rows`: so
  /// many come before the final steps.
  void View(int64_t env_rows, sample::PolicyRows& out);

  /// Bytes of all columns with `open` more final rows, as they go on the wire.
  int64_t Bytes(int64_t open) const {
    return policy_bytes_ + rows * row_bytes_ + (final_rows + open) * final_bytes_ +
           static_cast<int64_t>(segment_rows.size()) * segment_bytes_ + num_memories * memory_bytes_;
  }

  policy::PolicySlot policy = policy::kNoPolicy;  ///< whose rows these are
  int64_t rows = 0;
  int64_t first_open = 0;
  std::vector<inference::RowKey> keys;  ///< of the open rows
  int64_t shift = 0;                    ///< see FragmentBuilder::DropRowsOfDone; 0 between calls
  std::vector<int64_t> segment_rows;    ///< rows of each segment
  std::vector<int64_t> holes;           ///< rows whose transition does not belong to this fragment
  int64_t final_rows = 0;
  /// By final row, in place of its column until View: an env row, or below 0 ~index into the fragment's final steps.
  std::vector<int32_t> final_steps;
  int64_t num_memories = 0;
  std::vector<OpenDecision> open_decisions;  ///< of the open rows, where the policy remembers
  std::vector<float> open_memory;            ///< [open rows, state size] at least, for ActInput

 private:
  struct Retired {
    Column* column;
    tensor::Buffer memory;
    int64_t rows;
  };

  void GrowRows();
  void CopyRetired();
  void CompactRows();
  void CompactMemories();
  /// Room for `capacity` rows of `extent`, the first `used` kept.
  void Grow(sample::Extent extent, int64_t used, int64_t capacity);

  const int64_t policy_bytes_;
  const int64_t row_bytes_;
  const int64_t segment_bytes_;
  const int64_t final_bytes_;
  const int64_t memory_bytes_;
  int64_t capacity_ = 0;
  int64_t segment_capacity_ = 0;
  int64_t final_capacity_ = 0;
  int64_t memory_capacity_ = 0;
  std::vector<Retired> retired_;
  std::vector<space::ActionWord> open_actions_;  ///< with has_byte_actions
  const sample::PolicyForms forms_;
  const bool has_byte_actions_;
};

/// Rows of the env-step tables while a fragment is being filled, as PolicyColumns.
class StepTable : public sample::StepColumnSet<Column> {
 public:
  explicit StepTable(const sample::StepForms& forms);

  const sample::StepForms& forms() const { return forms_; }
  /// One more row; its state is uninitialized.
  int32_t Add(int32_t episode, int32_t step);
  /// `other` has the same columns; its rows come after these.
  void Append(const StepTable& other);
  /// Sets the views of `out`, which are valid until the next change here.
  void View(sample::MultiAgentBatch& out) const;
  int64_t row_bytes() const { return row_bytes_; }

  int64_t rows = 0;

 private:
  void Grow(int64_t capacity);

  const int64_t row_bytes_;
  int64_t capacity_ = 0;
  const sample::StepForms forms_;
};

/// The memory of one fragment. Reused from fragment to fragment. Its size follows from the policies that have rows at
/// the same time, not from how many the run has.
struct FragmentStorage {
  explicit FragmentStorage(const sample::StepForms& forms);
  void Clear();

  /// The columns of the policy in `slot`, which have these forms; its first call in a fragment finds memory for them.
  PolicyColumns& Columns(policy::PolicySlot slot, const sample::PolicyForms& forms) {
    if (!place_.Contains(slot) || place_[slot] < 0) return AddColumns(slot, forms);
    return *policies[static_cast<size_t>(place_[slot])];
  }

  std::vector<std::unique_ptr<PolicyColumns>> policies;  ///< those with columns, in the order in which they got them
  StepTable steps;                                       ///< at which agents act
  StepTable final_steps;  ///< only looked at; they go behind the others when the fragment is finished
  std::vector<sample::EpisodeEntry> spare_episodes;  ///< kept for the memory of their members
  std::vector<sample::FinishedEpisode> spare_finished;

 private:
  PolicyColumns& AddColumns(policy::PolicySlot slot, const sample::PolicyForms& forms);

  policy::BySlot<int32_t> place_;                      ///< in `policies`; -1: none
  std::vector<std::unique_ptr<PolicyColumns>> spare_;  ///< empty
};

/// Fragments' memory that nobody uses at the moment. Batches return to it when their last owner lets go, on any thread,
/// also after the pool itself is gone. Thread-safe; never blocks for long. Grows with the number of fragments in
/// flight, which the SampleSink's byte credit bounds; keeps at most kMaxIdle unused ones.
class FragmentPool {
 public:
  static constexpr size_t kMaxIdle = 8;

  FragmentPool();

  /// An empty storage whose env-step tables have these forms, and a batch whose vectors are empty.
  std::unique_ptr<FragmentStorage> TakeStorage(const sample::StepForms& forms);
  std::unique_ptr<sample::MultiAgentBatch> TakeBatch();
  /// The batch as it is shared with a sink; gives both back when the last owner lets go.
  sample::MultiAgentBatchPtr Share(std::unique_ptr<sample::MultiAgentBatch> batch,
                                   std::unique_ptr<FragmentStorage> storage);
  void Return(std::unique_ptr<sample::MultiAgentBatch> batch, std::unique_ptr<FragmentStorage> storage);

 private:
  struct Shelf {
    base::Mutex mutex;
    std::vector<std::unique_ptr<FragmentStorage>> storages ABSL_GUARDED_BY(mutex);
    std::vector<std::unique_ptr<sample::MultiAgentBatch>> batches ABSL_GUARDED_BY(mutex);
  };

  static void PutBack(Shelf& shelf, std::unique_ptr<sample::MultiAgentBatch> batch,
                      std::unique_ptr<FragmentStorage> storage);

  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace troupe::rollout
