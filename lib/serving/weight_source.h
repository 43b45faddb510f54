#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::serving {

/// Where weights are that nobody hands in: a checkpoint. Thread-safe; may block on the storage.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The weights of `spec`'s policy, which fit it. DATA_LOSS: they are damaged or gone. The error is the answer to the
  /// query that wanted them.
  virtual absl::StatusOr<policy::WeightSnapshotPtr> Load(const policy::PolicySpec& spec) = 0;
  /// The same of its value network (policy::ValueNetworkOf), which it has; UNIMPLEMENTED: there are actors alone.
  virtual absl::StatusOr<policy::WeightSnapshotPtr> LoadValues(const policy::PolicySpec& spec);
};

/// Weights of one policy that may be acted with: themselves, or where they are read when they are needed. Plain value.
struct OfferedWeights {
  policy::WeightVersion version;                   ///< of either
  policy::WeightSnapshotPtr weights = nullptr;     ///< nullptr: in `source`
  std::shared_ptr<WeightSource> source = nullptr;  ///< nullptr, too: nothing is offered. With both it has the values

  bool empty() const { return weights == nullptr && source == nullptr; }
  /// Blocks as the source does. The offer is not empty.
  absl::StatusOr<policy::WeightSnapshotPtr> Get(const policy::PolicySpec& spec) const {
    if (weights != nullptr) return weights;
    return source->Load(spec);
  }
};

}  // namespace troupe::serving
