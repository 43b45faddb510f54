#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::storage {

/// A file that lies in memory.
struct NamedFile {
  std::string name;
  std::string bytes;
};

/// A checkpoint for who acts and does nothing else: manifest.json and policies.safetensors, as CheckpointWeights reads
/// them, with the bits of the snapshots. `specs` and `weights` are by slot; `rules` and `agent_ids` as a PolicyTable
/// has them. Of critics, optimizers, normalizers but the observation's, counters, configuration and places nothing is
/// in it; policies are all of class trained, and none trains. INVALID_ARGUMENT: a policy without weights, or weights
/// that are not those of their spec; what PolicyTable::Make says.
absl::StatusOr<std::vector<NamedFile>> ActingCheckpoint(std::vector<policy::PolicySpec> specs,
                                                        absl::Span<const policy::WeightSnapshotPtr> weights,
                                                        std::vector<policy::MappingRule> rules,
                                                        std::vector<std::string> agent_ids);

}  // namespace troupe::storage
