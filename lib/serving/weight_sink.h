#pragma once

#include "absl/status/status.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::serving {

/// Where the policies and weights of a run that trains elsewhere go. Called by one thread at a time.
class WeightSink {
 public:
  virtual ~WeightSink() = default;
  /// The run's policies, before any weights of those that they bring. An error ends what calls it.
  virtual absl::Status OnPolicies(const policy::PolicyTablePtr& policies) = 0;
  /// Newer weights of one of them, which fit it.
  virtual absl::Status OnWeights(policy::WeightSnapshotPtr weights) = 0;
};

}  // namespace troupe::serving
