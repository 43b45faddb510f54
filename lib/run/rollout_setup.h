#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/outside/episode_book.h"
#include "lib/rollout/collector.h"

namespace troupe::run {

/// What a run's workers, its sampler in the learner and its evaluations sample with. `registry` must outlive every use
/// of the result, as must `book`, which holds the episodes where the run's world is outside; nullptr: nobody plays it.
/// `callbacks`: classes in Python that are called as episodes go, in training alone.
absl::StatusOr<rollout::RolloutConfig> MakeRolloutConfig(const config::ResolvedRun& run,
                                                         const env::EnvRegistry& registry,
                                                         const std::vector<std::string>& callbacks = {},
                                                         outside::EpisodeBook* book = nullptr);

}  // namespace troupe::run
