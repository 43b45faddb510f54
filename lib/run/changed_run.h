#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/run/run_checkpoint.h"

namespace troupe::run {

/// What is played otherwise than the run did; empty: nothing.
struct RunChanges {
  /// "KEY=VALUE" of env, evaluation and multi_agent.policy_mapping, in order.
  std::vector<std::string> overrides;
  /// "ID=CLASS": policies that are of another class here, as multi_agent.policies has classes.
  std::vector<std::string> classes;
};

/// `run` as evaluations play it, with the environment that `evaluation.env` asks for, which is made for that; nullopt:
/// it asks for none. Errors begin with the key: those of the environment, and FAILED_PRECONDITION where a policy does
/// not fit.
absl::StatusOr<std::optional<config::ResolvedRun>> ResolveEvaluation(const config::ResolvedRun& run,
                                                                     const env::EnvRegistry& registry);

/// A run as its folder tells it, with the weights of one checkpoint: what plays its policies.
struct RunPolicies : RunCheckpoint {
  std::vector<policy::WeightSnapshotPtr> weights;  ///< by policy slot, verified; nullptr for a class without
};

/// The run in `folder` and its checkpoint `which` (storage::ReadNamedCheckpoint) with `changes`; writes nothing. The
/// policies and, unless it is changed, the mapping are those of the checkpoint. Errors as ReadRunCheckpoint, and
/// INVALID_ARGUMENT, NOT_FOUND or FAILED_PRECONDITION with the place of a change that cannot be: a key that is not to
/// be changed, no such policy, a class that does not fit, an agent whose policy has other spaces or was trained among
/// another number of agents.
absl::StatusOr<RunPolicies> LoadChangedRun(const std::string& folder, const std::string& which,
                                           const RunChanges& changes, const env::EnvRegistry& registry);

}  // namespace troupe::run
