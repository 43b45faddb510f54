#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/rollout/collector.h"

namespace troupe::run {

/// What a run's workers, its sampler in the learner and its evaluations sample with. `registry` must outlive every use
/// of the result. `callbacks`: classes in Python that are called as episodes go, in training alone.
absl::StatusOr<rollout::RolloutConfig> MakeRolloutConfig(const config::ResolvedRun& run,
                                                         const env::EnvRegistry& registry,
                                                         const std::vector<std::string>& callbacks = {});

}  // namespace troupe::run
