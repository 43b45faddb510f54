#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "lib/base/check.h"
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

}  // namespace troupe::sample
