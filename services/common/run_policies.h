#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/foreign_code.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::services {

/// A run as its folder tells it, and one of its checkpoints.
struct RunCheckpoint {
  config::ResolvedRun run;
  std::string checkpoint;  ///< the checkpoint's directory
};

/// Makes the active policies of `table`, in the order of their slots, and its mapping those of `run`: what it began
/// with may have changed while it trained. Its training options stay.
void UsePolicies(const policy::PolicyTable& table, config::ResolvedRun* run);

/// Says on stderr, a line each, what playing a run executes that is not Troupe's own; nothing for native code. To be
/// called before the run is resolved, for its folder is a program to whoever plays it.
void SayForeignCode(const std::vector<config::ForeignCode>& code);

/// Finds the run in `folder` and its checkpoint `which` ("latest", "best" or env steps). The run's policies are those
/// of the checkpoint, of which no weights are read. Makes the run's environment, after SayForeignCode. Errors as below.
absl::StatusOr<RunCheckpoint> FindRunCheckpoint(const std::string& folder, const std::string& which,
                                                const env::EnvRegistry& registry);

/// All weights of the checkpoint by policy slot, verified; nullptr for a class without. NOT_FOUND: it lacks a policy;
/// DATA_LOSS: it is damaged; INVALID_ARGUMENT: its networks are not the run's.
absl::StatusOr<std::vector<policy::WeightSnapshotPtr>> LoadWeights(const RunCheckpoint& from);

/// A run as its folder tells it, with the weights of one checkpoint: what plays or serves its policies.
struct RunPolicies : RunCheckpoint {
  std::vector<policy::WeightSnapshotPtr> weights;  ///< by policy slot; nullptr for a class without
};

/// Reads the run in `folder` and its checkpoint `which` ("latest", "best" or env steps), verified; writes nothing.
/// NOT_FOUND: no such checkpoint; DATA_LOSS: it is damaged; INVALID_ARGUMENT: this build does not understand the run.
absl::StatusOr<RunPolicies> LoadRunPolicies(const std::string& folder, const std::string& which,
                                            const env::EnvRegistry& registry);

}  // namespace troupe::services
