#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/env_sizes.h"
#include "lib/sample/ids.h"

namespace troupe::sample {

/// What a run's fragments must look like; equal on both ends of a stream or the stream is refused. Plain value.
struct BatchSchema {
  // Defined in the .cc, so that who includes this header needs no policy_spec.h.
  BatchSchema();
  BatchSchema(const BatchSchema& other);
  BatchSchema(BatchSchema&& other) noexcept;
  BatchSchema& operator=(const BatchSchema& other);
  BatchSchema& operator=(BatchSchema&& other) noexcept;
  ~BatchSchema();

  std::vector<std::string> agent_ids;  ///< by agent slot
  /// By agent slot: elements of its flattened observation. Lays out joint observations; may be empty when no critic
  /// needs them.
  std::vector<int64_t> agent_observation_sizes;
  policy::BySlot<policy::PolicySpec> policies;
  int64_t env_state_size = 0;    ///< elements of a per-env state; 0: none
  int64_t agent_state_size = 0;  ///< elements of a per-agent state; 0: none
  bool has_agent_mask = false;
  /// The global state is in every fragment. Else where somebody reads it: a per-env state where the critic of a policy
  /// does that the run has by the fragment's policies_revision, a per-agent state in the rows of such a policy.
  bool always_sends_state = false;
  int64_t num_info_columns = 0;
  uint32_t num_envs = 0;  ///< global env ids are below it
  /// Where policies change: the revision that brought each, -1: free. Rows of a slot that is free, or
  /// whose policy is younger than the fragment's policies_revision, are of a policy that is gone: ValidateShapes leaves
  /// them to the learner, which counts them as STALE. Empty: the policies never change.
  policy::BySlot<int64_t> policies_since;
  /// Revisions at which a per-env state began to be read (true) or was no longer (false), ascending; SetPolicies adds
  /// to it. Empty: `policies` say it for every revision.
  struct StateReading {
    int64_t since = 0;
    bool is_read = false;
  };
  std::vector<StateReading> state_readings;
  int64_t newest_revision = 0;  ///< that SetPolicies was given

  /// The policies from now on: those of `table`, which is not older than the one before.
  void SetPolicies(const policy::PolicyTable& table);

  /// Whether the slot's policy is gone for a fragment of `policies_revision`.
  bool IsGone(policy::PolicySlot slot, int64_t policies_revision) const;
  /// A free slot's is empty.
  policy::BySlot<policy::PolicyId> PolicyIds() const;
  /// Slots that a fragment may name are below it.
  int32_t NumSlots() const;
  /// Whether fragments of this revision have a per-env state. nullopt: of a revision that this schema was not told of,
  /// as those are that an earlier learner gave.
  std::optional<bool> SendsEnvState(int64_t policies_revision) const;
  /// What the forms of columns follow from, beside the policies, in fragments of this revision; where that is not known
  /// in fragments `with_state`.
  EnvSizes sizes(int64_t policies_revision, bool with_state = false) const;
  /// ... in fragments with all that the run may have.
  EnvSizes MaxSizes() const { return {env_state_size, agent_state_size, has_agent_mask, true}; }

  /// 64-bit FNV-1a of the canonical text: what a checkpoint is told by.
  uint64_t Hash() const;
  /// The same of what workers are told (PolicyClass::ForWorkers), and always_sends_state, which checkpoints do not
  /// depend on: the spec hash of Hello and Welcome.
  uint64_t WorkerHash() const;
};

/// Limits that hold before anything is kept; each has a test.
struct BatchLimits {
  int64_t max_rows_per_policy = int64_t{1} << 22;
  int64_t max_env_steps = int64_t{1} << 22;
  int64_t max_env_rows = kMaxIndexed;             ///< acting and final ones together; at most kMaxIndexed
  int64_t max_episodes = kMaxIndexed;             ///< at most kMaxIndexed
  int64_t max_segments_per_policy = kMaxIndexed;  ///< at most kMaxIndexed
  int64_t max_message_bytes = 4 << 20;
  double max_abs_return = 1e12;  ///< of an agent in an episode that ended, and of a single reward
};

/// Sizes, dtypes and counts of every column against the schema, with overflow-safe arithmetic; INVALID_ARGUMENT says
/// what, got, expected. Reads no column memory: a decoder calls it before it keeps a byte.
absl::Status ValidateShapes(const MultiAgentBatch& batch, const BatchSchema& schema, const BatchLimits& limits);

/// ValidateShapes, then the contents: indices in range, PolicyRows' invariants, all floats finite, discrete actions
/// inside their space.
absl::Status ValidateBatch(const MultiAgentBatch& batch, const BatchSchema& schema, const BatchLimits& limits);

}  // namespace troupe::sample
