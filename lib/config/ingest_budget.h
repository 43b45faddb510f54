#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"

namespace troupe::config {

/// Whether batches are counted in agent steps.
bool CountsAgentSteps(const ResolvedRun& run);
/// Env steps of a batch, where every agent acts at every step.
int64_t EnvStepsOfBatch(const ResolvedRun& run);
/// "4000 env steps".
std::string BatchText(const ResolvedRun& run);

/// What learner.ingest_budget_bytes: auto is where batches need no more, and the most that it becomes where they do.
inline constexpr int64_t kLeastAutoIngestBudgetBytes = int64_t{512} << 20;
inline constexpr int64_t kMostAutoIngestBudgetBytes = int64_t{16} << 30;

/// Bytes of fragments that the learner holds, of a run whose learner, rollout and schema are filled in: what the key
/// says, or by itself enough for the batches that may be sampled ahead and a fragment of every worker, within the two
/// bounds. INVALID_ARGUMENT where that does not hold them, with the largest batch that would fit.
absl::StatusOr<int64_t> IngestBudget(const ResolvedRun& run);

}  // namespace troupe::config
