#pragma once

#include "absl/status/status.h"
#include "lib/env/registry.h"
#include "services/learner/learner_flags.h"

namespace troupe::services {

/// Trains one run from its flags to its end (a stop condition, a drain, a signal): makes the parts, starts the threads,
/// runs the update loop, writes the last checkpoint, the last evaluation and summary.json, and takes everything down in
/// order. OK: the run ended as it should; else why not, for the person at the command line.
///
/// Threads: the caller's is the update thread; one writes checkpoints, one ticks, gRPC and the trainer have theirs;
/// with `num_workers: 0` one samples.
absl::Status RunLearner(const LearnerFlags& flags, const env::EnvRegistry& registry);

}  // namespace troupe::services
