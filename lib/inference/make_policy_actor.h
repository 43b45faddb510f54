#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/inference/actor_host.h"
#include "lib/inference/backend.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::inference {

/// What acts for a policy of this class; samples follow from `seed`, the run's. Errors are those of Actor::Create,
/// ScriptedActor::Create and ActorHost::MakeActor; FAILED_PRECONDITION for a class that needs a host where there is
/// none, and for a user's module in a program without LibTorch.
absl::StatusOr<std::unique_ptr<PolicyActor>> MakePolicyActor(const policy::PolicySpec& spec, uint64_t seed,
                                                             Backend backend = Backend::kAuto,
                                                             ActorHost* host = nullptr);

/// Whether a policy of a class without weights can play its spaces, as far as can be said without its code.
absl::Status CheckWithoutWeights(const policy::PolicySpec& spec);

}  // namespace troupe::inference
