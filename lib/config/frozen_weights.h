#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/env/registry.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::config {

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
