#include "lib/inference/make_policy_actor.h"

#include "absl/strings/str_cat.h"
#include "lib/inference/actor.h"
#include "lib/inference/module_actors.h"
#include "lib/inference/scripted_actor.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {
namespace {

ModuleActors* g_module_actors = nullptr;

absl::StatusOr<std::unique_ptr<PolicyActor>> MakeModuleActor(const policy::PolicySpec& spec, uint64_t seed) {
  if (g_module_actors != nullptr) return g_module_actors->MakeActor(spec, seed);
  return absl::FailedPreconditionError(absl::StrCat(
      "policy \"", spec.id.value(), "\" is a TorchScript module, and this program has no LibTorch to run it; ",
      "expected troupe-learner with worker, evaluate, serve or query behind it"));
}

}  // namespace

void SetModuleActors(ModuleActors* actors) { g_module_actors = actors; }

absl::StatusOr<std::unique_ptr<PolicyActor>> MakePolicyActor(const policy::PolicySpec& spec, uint64_t seed,
                                                             Backend backend, ActorHost* host) {
  if (spec.policy_class.has_weights()) {
    if (spec.actor.encoder == policy::EncoderKind::kTorchScript) return MakeModuleActor(spec, seed);
    return Actor::Create(spec, seed, backend);
  }
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
