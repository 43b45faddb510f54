#include "lib/training/registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/frozen_parameters.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/core/prepared_batch.h"

namespace troupe::training {

#define TROUPE_ALGORITHM(Name) const Algorithm& Name##Algorithm();
#include "lib/training/registry.inc"
#undef TROUPE_ALGORITHM

namespace {

const std::vector<const Algorithm*>& Algorithms() {
  static const auto& algorithms = *new std::vector<const Algorithm*>{
#define TROUPE_ALGORITHM(Name) &Name##Algorithm(),
#include "lib/training/registry.inc"
#undef TROUPE_ALGORITHM
  };
  return algorithms;
}

/// The form of the state of a policy; that of one that is not trained has nothing of an algorithm's.
absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) {
  if (spec.name.empty()) return StateForm{};
  TROUPE_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(spec.name));
  return algorithm->FormOf(spec);
}

}  // namespace

std::vector<std::string> AlgorithmNames() {
  std::vector<std::string> names;
  for (const Algorithm* algorithm : Algorithms()) names.emplace_back(algorithm->name());
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<const Algorithm*> FindAlgorithm(std::string_view name) {
  for (const Algorithm* algorithm : Algorithms()) {
    if (algorithm->name() == name) return algorithm;
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no algorithm \"", std::string(name), "\"; expected one of ",
                                                 absl::StrJoin(AlgorithmNames(), ", ")));
}

namespace {

/// With a critic that shares the actor's encoder there is one rate.
absl::Status CheckCriticRate(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec) {
  const auto critic = spec.options.find("critic_lr");
  const auto actor = spec.options.find("lr");
  if (!policy.shares_encoder() || critic == spec.options.end()) return absl::OkStatus();
  if (actor != spec.options.end() && critic->second == actor->second) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("algorithm.critic_lr: got another rate than lr, but the critic of policy \"", policy.id.value(),
                   "\" shares the actor's encoder (model.critic_encoder), which one rate trains; expected auto"));
}

}  // namespace

absl::Status CheckAlgorithm(const policy::AlgorithmSpec& spec) { return FormOf(spec).status(); }

absl::Status CheckAlgorithmOf(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec) {
  if (!policy.policy_class.trainable()) return absl::OkStatus();
  const auto is_on = [&spec](const char* key) {
    const auto option = spec.options.find(key);
    const bool* const value = option == spec.options.end() ? nullptr : std::get_if<bool>(&option->second);
    return value != nullptr && *value;
  };
  if (is_on("death_masking")) TROUPE_RETURN_IF_ERROR(CheckDeathMasking(policy));
  TROUPE_RETURN_IF_ERROR(CheckCriticRate(policy, spec));
  if (const auto gamma = spec.options.find("gamma"); policy.reward_discount != 1 && gamma != spec.options.end() &&
                                                     std::holds_alternative<policy::ScheduleValue>(gamma->second)) {
    return absl::InvalidArgumentError(
        "algorithm.gamma: got a schedule with discount_by: env_step, expected a number: workers discount by it, too");
  }
  if (is_on("use_popart") && policy.critic().encoder == policy::EncoderKind::kTorchScript) {
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm.use_popart: got true, but the critic of policy \"", policy.id.value(),
                     "\" is a TorchScript module, of which no layer is known to be the last; expected false"));
  }
  const auto minibatch_by = spec.options.find("minibatch_by");
  if (minibatch_by != spec.options.end() && minibatch_by->second == policy::OptionValue(std::string("env_steps"))) {
    TROUPE_RETURN_IF_ERROR(CheckMinibatchBy(policy, MinibatchBy::kEnvSteps));
  }
  const auto frozen = spec.options.find("frozen_parameters");
  // The names of a module's tensors are known where there is LibTorch: whoever trains looks at them.
  if (frozen == spec.options.end() || policy::HasUnreadModule(policy)) return absl::OkStatus();
  const auto* const globs = std::get_if<std::vector<std::string>>(&frozen->second);
  if (globs == nullptr) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const std::vector<ParameterRange> ranges, FrozenRanges(policy, *globs));
  return ValuesAreFrozen(policy, ranges, is_on("use_popart")).status();
}

absl::StatusOr<std::string> StateShape(const policy::PolicySpec& policy, const policy::AlgorithmSpec& algorithm) {
  TROUPE_ASSIGN_OR_RETURN(const StateForm form, FormOf(algorithm));
  return absl::StrCat(policy::ShapeOf(policy), form.ToString());
}

absl::Status CheckSwappable(const std::vector<policy::PolicySpec>& policies,
                            const std::vector<policy::AlgorithmSpec>& algorithms) {
  if (policies.size() != algorithms.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got algorithms of ", algorithms.size(), " policies; expected ", policies.size()));
  }
  std::vector<StateForm> forms;
  for (const policy::AlgorithmSpec& algorithm : algorithms) {
    TROUPE_ASSIGN_OR_RETURN(forms.emplace_back(), FormOf(algorithm));
  }
  return CheckSwappable(policies, forms);
}

absl::StatusOr<policy::PolicyState> InitialState(const policy::PolicySpec& policy,
                                                 const policy::AlgorithmSpec& algorithm, uint64_t seed) {
  TROUPE_ASSIGN_OR_RETURN(const StateForm form, FormOf(algorithm));
  return InitialState(policy, form, seed);
}

}  // namespace troupe::training
