#pragma once

#include <string>

#include "absl/status/status.h"
#include "lib/config/resolved_run.h"

namespace troupe::run {

/// Starts troupe.wandb_follow with `python3`, which follows progress.jsonl with the official Weights & Biases client
/// and ends with summary.json, or with this process. The arguments of wandb.init go through a descriptor: they may be
/// secret. NOT_FOUND where python3 cannot be started; a missing client is the follower's error on stderr, and never the
/// run's.
absl::Status StartWandbFollower(const std::string& run_directory, const config::ExperimentOptions& experiment);

}  // namespace troupe::run
