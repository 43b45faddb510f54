#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {

/// Plays policies whose code lives in another process (class python:…). Thread-safe; outlives its actors.
class ActorHost {
 public:
  virtual ~ActorHost() = default;
  /// Waits until the policy is made there. What its actor does blocks, too; `seed` is the run's.
  virtual absl::StatusOr<std::unique_ptr<PolicyActor>> MakeActor(const policy::PolicySpec& spec, uint64_t seed) = 0;
  /// What its actors wait for ends now with CANCELLED, and so does whatever they are asked from now on. Does not wait
  /// for them.
  virtual void Stop() {}
};

}  // namespace troupe::inference
