#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lib/inference/actor.h"
#include "lib/inference/policy_actor.h"

namespace troupe::inference {

/// What acts for a policy of this class; samples follow from `seed`, the run's. Errors are those of Actor::Create and
/// ScriptedActor::Create.
absl::StatusOr<std::unique_ptr<PolicyActor>> MakePolicyActor(const policy::PolicySpec& spec, uint64_t seed,
                                                             Backend backend = Backend::kAuto);

}  // namespace troupe::inference
