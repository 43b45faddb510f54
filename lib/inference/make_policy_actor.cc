#include "lib/inference/make_policy_actor.h"

#include "absl/strings/str_cat.h"
#include "lib/inference/scripted_actor.h"

namespace troupe::inference {

absl::StatusOr<std::unique_ptr<PolicyActor>> MakePolicyActor(const policy::PolicySpec& spec, uint64_t seed,
                                                             Backend backend, ActorHost* host) {
  if (spec.policy_class.has_weights()) return Actor::Create(spec, seed, backend);
  if (spec.policy_class.kind != policy::PolicyClass::Kind::kPython) return ScriptedActor::Create(spec, seed);
  if (host != nullptr) return host->MakeActor(spec, seed);
  return absl::FailedPreconditionError(absl::StrCat("policy \"", spec.id.value(), "\" is of class ",
                                                    spec.policy_class.ToString(),
                                                    ", and there is no Python process to play it"));
}

absl::Status CheckWithoutWeights(const policy::PolicySpec& spec) {
  if (spec.policy_class.kind == policy::PolicyClass::Kind::kPython) return spec.Validate();
  return ScriptedActor::Create(spec, 0).status();
}

}  // namespace troupe::inference
