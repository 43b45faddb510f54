#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::config {

/// How much of a policy is taken from a checkpoint.
enum class PolicyPart : uint8_t {
  kWeights = 1,  ///< weights and normalizers: it acts as it did
  kAll = 2,      ///< the optimizer and the counters, too: it goes on as it was
};

/// One policy alone from a checkpoint of any run: `source` (empty: the one of spec's id) of `path`, for a policy of
/// `spec`. PATH is a checkpoint directory, or a run folder, whose latest is taken; relative to the working directory.
/// Policies that came or went while that run trained are found as they were then. The state has spec's id and version
/// (0, 0). Errors as below, without the place of a key.
absl::StatusOr<policy::PolicyState> LoadPolicy(const std::string& path, const policy::PolicyId& source,
                                               const policy::PolicySpec& spec, PolicyPart part,
                                               const env::EnvRegistry& registry);

/// The weights of the run's policies of class checkpoint:PATH, by policy slot; nullopt for the others. PATH is a
/// checkpoint directory, or a run folder, whose latest is taken; relative to the working directory. Reads and verifies
/// files, writes none. A state has the run's policy id, version (0, 0) and no optimizer.
///
/// Errors have the place of the key. NOT_FOUND: no such checkpoint, or no such policy in it. FAILED_PRECONDITION: that
/// policy has no weights, or another spec (says what differs; the id and the gains of fresh weights may). DATA_LOSS: it
/// is damaged. INVALID_ARGUMENT: its configuration cannot be read by this build.
absl::StatusOr<std::vector<std::optional<policy::PolicyState>>> LoadFrozenWeights(const ResolvedRun& run,
                                                                                  const env::EnvRegistry& registry);

}  // namespace troupe::config
