#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/foreign_code.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/policy/policy_table.h"

namespace troupe::run {

/// A run as its folder tells it, and one of its checkpoints.
struct RunCheckpoint {
  config::ResolvedRun run;
  std::string checkpoint;  ///< the checkpoint's directory
  int64_t env_steps = 0;   ///< trained, at that checkpoint
};

/// Makes the active policies of `table`, in the order of their slots, and its mapping those of `run`: what it began
/// with may have changed while it trained. Its training options stay.
void UsePolicies(const policy::PolicyTable& table, config::ResolvedRun* run);

/// Says on stderr, a line each, what playing a run executes that is not Troupe's own; nothing for native code. To be
/// called before the run is resolved, for its folder is a program to whoever plays it.
void SayForeignCode(const std::vector<config::ForeignCode>& code);

/// The run in `folder` at its checkpoint in the directory `checkpoint`. The run's policies are those of the checkpoint,
/// of which no weights are read. Makes the run's environment, after SayForeignCode. DATA_LOSS: it is damaged;
/// INVALID_ARGUMENT: this build does not understand the run. `overrides` ("KEY=VALUE") change what
/// CheckEvaluationConfig allows, beyond what the run's evaluation.env does.
absl::StatusOr<RunCheckpoint> ReadRunCheckpoint(const std::string& folder, const std::string& checkpoint,
                                                const env::EnvRegistry& registry,
                                                const std::vector<std::string>& overrides);

}  // namespace troupe::run
