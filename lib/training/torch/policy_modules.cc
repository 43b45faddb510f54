#include "lib/training/torch/policy_modules.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/training/script/script_modules.h"

namespace troupe::training {

using torch::Tensor;

absl::StatusOr<Scripts> LoadScripts(const policy::PolicySpec& spec, const Device& device) {
  Scripts scripts;
  for (const policy::NetworkSpec* const network : {&spec.actor, &spec.critic()}) {
    switch (network->encoder) {  // a kind that is added does not compile before it is computed here
      case policy::EncoderKind::kMlp:
      case policy::EncoderKind::kCnn:
      case policy::EncoderKind::kLeaves:
      case policy::EncoderKind::kAttention:
      case policy::EncoderKind::kShared:
        continue;
      case policy::EncoderKind::kTorchScript: {
        TROUPE_ASSIGN_OR_RETURN((network == &spec.actor ? scripts.actor : scripts.critic),
                                LoadScript(spec, *network, device));
        if (!network->has_target) continue;
        TROUPE_ASSIGN_OR_RETURN(scripts.actor_target, LoadScript(spec, *network, device));
        continue;
      }
    }
    return absl::UnimplementedError(
        absl::StrCat("LibTorch's back end computes encoders of kind mlp, cnn, leaves, attention, torchscript and "
                     "shared, got unknown for the ",
                     network->role));
  }
  return scripts;
}

Modules MakeModules(const policy::PolicySpec& spec, const policy::ParameterLayout& layout, const Scripts& scripts,
                    const Tensor& values, const Tensor& gradients) {
  Modules modules{.values = values, .gradients = gradients};
  const auto leaf = [&](const std::string& name) {
    const policy::ParameterEntry* entry = layout.Find(name);
    Tensor parameter = values.narrow(0, entry->offset, entry->count).view(entry->shape).detach().requires_grad_(true);
    parameter.mutable_grad() = gradients.narrow(0, entry->offset, entry->count).view(entry->shape);
    return parameter;
  };
  modules.actor = MakeModule(spec, spec.actor, leaf, scripts.actor);
  modules.critic = MakeModule(spec, spec.critic(), leaf, scripts.critic);
  if (layout.Find("actor.log_std") != nullptr) modules.log_std = leaf("actor.log_std");
  return modules;
}

Modules MakeTargetActor(const policy::PolicySpec& spec, const policy::ParameterLayout& layout, const Scripts& scripts,
                        const Tensor& values) {
  Modules modules{.values = values};
  const auto find = [&](const std::string& name) {
    const std::string of_target =
        policy::kActorRole + std::string(policy::kTargetOf) + name.substr(std::string(policy::kActorRole).size());
    const policy::ParameterEntry* const entry = layout.Find(of_target);
    return values.narrow(0, entry->offset, entry->count).view(entry->shape).detach();
  };
  modules.actor = MakeModule(spec, spec.actor, find, scripts.actor_target);
  if (layout.Find("actor.log_std") != nullptr) modules.log_std = find("actor.log_std");
  return modules;
}

}  // namespace troupe::training
