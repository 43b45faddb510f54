#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::inference {
class Actor;
}  // namespace troupe::inference

namespace troupe::serving {

/// An actor in memory, with the weights that it acts with: one query at a time.
struct ServingActor {
  ServingActor();
  ~ServingActor();

  base::Mutex mutex;
  std::unique_ptr<inference::PolicyActor> actor ABSL_GUARDED_BY(mutex);
  policy::WeightSnapshotPtr acting ABSL_GUARDED_BY(mutex);  ///< nullptr for a class without weights
  /// The policy's value network, once somebody has asked for values; its weights are of any version.
  std::unique_ptr<inference::Actor> values ABSL_GUARDED_BY(mutex);
  int64_t bytes = 0;  ///< of packed weights; constant
};

}  // namespace troupe::serving
