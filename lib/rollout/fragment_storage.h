#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/env/env_spec.h"
#include "lib/policy/policy_spec.h"
#include "lib/sample/multi_agent_batch.h"
#include "lib/tensor/buffer.h"

namespace troupe::rollout {

/// What determines the columns of fragments: the environment's spec and the run's policies (by policy slot).
struct RolloutSchema {
  env::EnvSpec env;
  std::vector<policy::PolicySpec> policies;

  bool has_env_state() const { return env.state_kind == env::StateKind::kPerEnv; }
  bool has_agent_state() const { return env.state_kind == env::StateKind::kPerAgent; }
  int64_t state_size() const { return env.state_kind == env::StateKind::kNone ? 0 : env.state_space.flat_size(); }
};

/// Rows of fixed width in one growing allocation. Not thread-safe.
class Column {
 public:
  explicit Column(size_t row_bytes = 0) : row_bytes_(row_bytes) {}

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
  sample::ColumnView View(tensor::DType dtype, int64_t rows, int64_t row_elements) const;

 private:
  size_t row_bytes_;
  tensor::Buffer buffer_;
};

/// The rows of one policy while a fragment is being filled. Columns are named as in sample::PolicyRows. Rows are
/// appended by AddRow; what stands in [first_open, rows) is observed and waits for its action.
class PolicyColumns {
 public:
  PolicyColumns(const RolloutSchema& schema, const policy::PolicySpec& spec);

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
  int32_t AddSegment(int32_t episode, int32_t slot, int32_t version_lag);
  int32_t* Segment(int32_t index) { return &segments[static_cast<size_t>(index) * sample::kSegmentFields]; }
  /// A final row with the observation, mask and state of row `from`.
  int32_t AddFinalRow(int64_t from, int32_t final_env_row);
  /// `to` becomes a copy of what the agent saw in row `from`.
  void MoveObservation(int64_t from, int64_t to);
  /// Takes the rows listed in `holes` out, and the segments that have none left.
  void Compact();

  /// Bytes of all columns with `open` more final rows, as they go on the wire.
  int64_t Bytes(int64_t open) const {
    return rows * row_bytes_ + (final_rows + open) * final_bytes_ +
           static_cast<int64_t>(segment_rows.size()) * sample::kSegmentFields * 4;
  }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t final_bytes() const { return final_bytes_; }

  int64_t rows = 0;
  int64_t first_open = 0;
  Column obs, actions, action_logp, rewards, terminated, truncated, action_mask, agent_mask, env_row, segment, state;
  std::vector<int32_t> segments;      ///< sample::kSegmentFields words each
  std::vector<int64_t> segment_rows;  ///< rows of each segment
  std::vector<int64_t> holes;         ///< rows whose transition does not belong to this fragment

  int64_t final_rows = 0;
  Column final_obs, final_action_mask, final_state;
  std::vector<int32_t> final_env_row;  ///< below 0: ~index into the final part of the env-step tables

 private:
  struct Retired {
    Column* column;
    tensor::Buffer memory;
    int64_t rows;
  };

  void GrowRows();
  void CopyRetired();
  void GrowFinals();

  int64_t capacity_ = 0;
  int64_t final_capacity_ = 0;
  int64_t row_bytes_ = 0;
  int64_t final_bytes_ = 0;
  std::vector<Retired> retired_;
};

/// The memory of one fragment. Reused from fragment to fragment.
struct FragmentStorage {
  explicit FragmentStorage(const RolloutSchema& schema);
  void Clear();

  std::vector<PolicyColumns> policies;
  std::vector<int32_t> step_episode, step_index, final_step_episode, final_step_index;
  Column state;  ///< per-env, of the steps at which agents act
  Column final_state;
  int64_t state_capacity = 0;
  int64_t final_state_capacity = 0;
  std::vector<sample::EpisodeEntry> spare_episodes;  ///< kept for the memory of their members
  std::vector<sample::FinishedEpisode> spare_finished;

  /// One more row in the env-step tables; `state` is uninitialized.
  int32_t AddEnvRow(int32_t episode, int32_t step);
  int32_t AddFinalEnvRow(int32_t episode, int32_t step);
};

/// Fragments' memory that nobody uses at the moment. Batches return to it when their last owner lets go, on any thread,
/// also after the pool itself is gone. Thread-safe; never blocks for long. Grows with the number of fragments in
/// flight, which the SampleSink's byte credit bounds; keeps at most kMaxIdle unused ones.
class FragmentPool {
 public:
  static constexpr size_t kMaxIdle = 8;

  explicit FragmentPool(const RolloutSchema& schema);

  /// An empty storage, and a batch whose vectors are empty.
  std::unique_ptr<FragmentStorage> TakeStorage();
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

  const RolloutSchema schema_;
  const std::shared_ptr<Shelf> shelf_;
};

}  // namespace troupe::rollout
