#pragma once

#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/outside/episode_book.h"
#include "lib/rollout/collector.h"

namespace troupe::run {

/// What a run's workers, its sampler in the learner and its evaluations sample with. `registry` must outlive every use
/// of the result, as must `book`, which holds the episodes where the run's world is outside; nullptr: nobody plays it.
absl::StatusOr<rollout::RolloutConfig> MakeRolloutConfig(const config::ResolvedRun& run,
                                                         const env::EnvRegistry& registry,
                                                         outside::EpisodeBook* book = nullptr);

}  // namespace troupe::run
