#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::config {

/// How much of a policy is taken from a checkpoint.
enum class PolicyPart : uint8_t {
  kWeights = 1,  ///< weights and normalizers: it acts as it did
  kAll = 2,      ///< the optimizer and the counters, too: it goes on as it was
};

/// One policy alone from a checkpoint of any run: `source` (empty: the one of spec's id) of `path`, for a policy of
/// `spec`. `path`: a checkpoint's directory, or a run folder, of which the latest is read, also where a learner removes
/// checkpoints meanwhile; relative to the working directory. Policies that came or went while that run trained are
/// found as they were then. The state has spec's id and version (0, 0). The run is data: its configuration is not read
/// and nothing of it is executed (storage::CheckpointWeights). Thread-safe; blocks on the disk. Errors as below,
/// without the place of a key.
absl::StatusOr<policy::PolicyState> LoadPolicy(const std::string& path, const policy::PolicyId& source,
                                               const policy::PolicySpec& spec, PolicyPart part);

/// The weights of the run's policies of class checkpoint:PATH, by policy slot; nullopt for the others. Reads and
/// verifies files, writes none. A state has the run's policy id, version (0, 0) and no optimizer.
///
/// Errors have the place of the key. NOT_FOUND: no such checkpoint, or no such policy in it. FAILED_PRECONDITION: that
/// policy has no weights, or another spec (says what differs; the id and the gains of fresh weights may), or the
/// checkpoint does not say what it holds. DATA_LOSS: it is damaged.
absl::StatusOr<std::vector<std::optional<policy::PolicyState>>> LoadFrozenWeights(const ResolvedRun& run);

/// The weights that policies which train are to begin with (`load`), into `states` by policy slot. Errors as
/// LoadFrozenWeights; INVALID_ARGUMENT where a policy of another class has the key.
absl::Status LoadGivenWeights(const ResolvedRun& run, std::vector<std::optional<policy::PolicyState>>* states);

/// The weights of --warm-start, by policy slot, for each policy that trains and has none yet: the one of its id of
/// `path`, without optimizer and with version (0, 0). Only the networks' shapes must be the same; with
/// multi_agent.load_parameters those of the tensors that it takes, and the rest is fresh. Errors begin with the flag;
/// they are LoadFrozenWeights', with the first tensor that differs, both its shapes and the keys that decide them.
absl::Status LoadWarmStart(const std::string& path, const ResolvedRun& run,
                           std::vector<std::optional<policy::PolicyState>>* states);

/// Of a run that begins without a warm start: INVALID_ARGUMENT where multi_agent.load_parameters says what to take.
absl::Status CheckNoWarmStart(const ResolvedRun& run);

}  // namespace troupe::config
