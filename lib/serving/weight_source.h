#pragma once

#include "absl/status/statusor.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::serving {

/// Where weights are that nobody hands in: a checkpoint. Thread-safe; may block on the storage.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The weights of `spec`'s policy, which fit it. DATA_LOSS: they are damaged or gone. The error is the answer to the
  /// query that wanted them.
  virtual absl::StatusOr<policy::WeightSnapshotPtr> Load(const policy::PolicySpec& spec) = 0;
};

}  // namespace troupe::serving
