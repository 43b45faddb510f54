#include "lib/training/torch/policy_modules.h"

#include <string>

namespace troupe::training {

using torch::Tensor;

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
