#include "lib/inference/make_policy_actor.h"

#include "lib/inference/scripted_actor.h"

namespace troupe::inference {

absl::StatusOr<std::unique_ptr<PolicyActor>> MakePolicyActor(const policy::PolicySpec& spec, uint64_t seed,
                                                             Backend backend) {
  if (spec.policy_class.has_weights()) return Actor::Create(spec, seed, backend);
  return ScriptedActor::Create(spec, seed);
}

}  // namespace troupe::inference
