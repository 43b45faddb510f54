#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/policy/ids.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/column_sets.h"
#include "lib/sample/episode_entries.h"
#include "lib/sample/ids.h"

namespace troupe::sample {

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

}  // namespace troupe::sample
