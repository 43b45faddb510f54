#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/columns.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::sample {

/// What a run's fragments must look like; equal on both ends of a stream or the stream is refused. Plain value.
struct BatchSchema {
  std::vector<std::string> agent_ids;  ///< by agent slot
  /// By agent slot: elements of its flattened observation. Lays out joint observations; may be empty when no critic
  /// needs them.
  std::vector<int64_t> agent_observation_sizes;
  std::vector<policy::PolicySpec> policies;  ///< by policy slot
  int64_t env_state_size = 0;                ///< elements of a per-env state; 0: none
  int64_t agent_state_size = 0;              ///< elements of a per-agent state; 0: none
  bool has_agent_mask = false;
  int64_t num_info_columns = 0;
  uint32_t num_envs = 0;  ///< global env ids are below it
  /// Where policies change: by policy slot the revision that brought it, -1: free. Rows of a slot that is free, or
  /// whose policy is younger than the fragment's policies_revision, are of a policy that is gone: ValidateShapes leaves
  /// them to the learner, which counts them as STALE. Empty: the policies never change.
  std::vector<int64_t> policies_since;

  /// Whether the slot's policy is gone for a fragment of `policies_revision`.
  bool IsGone(policy::PolicySlot slot, int64_t policies_revision) const;
  /// Slots that a fragment may name are below it.
  int32_t NumSlots() const;
  /// What the forms of columns follow from, beside the policies.
  EnvSizes sizes() const { return {env_state_size, agent_state_size, has_agent_mask}; }

  /// 64-bit FNV-1a of the canonical text: what a checkpoint is told by.
  uint64_t Hash() const;
  /// The same of what workers are told (PolicyClass::ForWorkers): the spec hash of Hello and Welcome.
  uint64_t WorkerHash() const;
};

/// Limits that hold before anything is kept; each has a test.
struct BatchLimits {
  int64_t max_rows_per_policy = int64_t{1} << 22;
  int64_t max_env_rows = int64_t{1} << 22;
  int64_t max_episodes = int64_t{1} << 20;
  int64_t max_message_bytes = 4 << 20;
  double max_abs_return = 1e12;  ///< of an agent in an episode that ended, and of a single reward
};

/// Sizes, dtypes and counts of every column against the schema, with overflow-safe arithmetic; INVALID_ARGUMENT says
/// what, got, expected. Reads no column memory: a decoder calls it before it keeps a byte.
absl::Status ValidateShapes(const MultiAgentBatch& batch, const BatchSchema& schema, const BatchLimits& limits);

/// ValidateShapes, then the contents: indices in range, PolicyRows' invariants, all floats finite, discrete actions
/// inside their space.
absl::Status ValidateBatch(const MultiAgentBatch& batch, const BatchSchema& schema, const BatchLimits& limits);

/// True when every float is finite (vectorized: any exponent of all ones is found by integer compares).
bool AllFinite(absl::Span<const float> values);

}  // namespace troupe::sample
