#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::inference {

/// Plays policies whose code lives in another process (class python:…). Thread-safe; outlives its actors.
class ActorHost {
 public:
  virtual ~ActorHost() = default;
  /// Waits for nothing: the actor's Prepare, or else its first Act, makes the policy there, and has the errors of that.
  /// So a policy that nobody plays is not made. What its actor does blocks; `seed` is the run's.
  virtual absl::StatusOr<std::unique_ptr<PolicyActor>> MakeActor(const policy::PolicySpec& spec, uint64_t seed) = 0;
  /// What its actors wait for ends now with CANCELLED, and so does whatever they are asked from now on. Does not wait
  /// for them.
  virtual void Stop() {}
};

}  // namespace troupe::inference
