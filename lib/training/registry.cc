#include "lib/training/registry.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/policy_store.h"

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

absl::Status CheckAlgorithm(const policy::AlgorithmSpec& spec) { return FormOf(spec).status(); }

absl::Status SetNetworks(const policy::AlgorithmSpec& spec, policy::PolicySpec* policy) {
  if (!policy->policy_class.has_weights() || spec.name.empty()) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(spec.name));
  TROUPE_RETURN_IF_ERROR(algorithm->SetNetworks(spec, policy));
  return policy->Validate();
}

absl::Status CheckAlgorithmOf(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec) {
  if (!policy.policy_class.trainable() || spec.name.empty()) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(spec.name));
  return algorithm->CheckPolicy(policy, spec);
}

std::vector<std::string> NamesThatFit(const policy::PolicySpec& policy) {
  std::vector<std::string> names;
  for (const std::string& name : AlgorithmNames()) {
    const Algorithm& algorithm = **FindAlgorithm(name);
    const policy::AlgorithmSpec spec{.name = name};
    policy::PolicySpec networks = policy;
    if (!algorithm.SetNetworks(spec, &networks).ok() || !algorithm.CheckPolicy(networks, spec).ok()) continue;
    names.push_back(name);
  }
  return names;
}

std::vector<std::string> NamesThatCorrectLag() {
  std::vector<std::string> names;
  for (const Algorithm* algorithm : Algorithms()) {
    if (algorithm->corrects_lag()) names.emplace_back(algorithm->name());
  }
  return names;
}

int64_t DefaultPolicyLag(const std::vector<policy::AlgorithmSpec>& algorithms) {
  bool any = false;
  for (const policy::AlgorithmSpec& spec : algorithms) {
    const absl::StatusOr<const Algorithm*> algorithm = FindAlgorithm(spec.name);
    if (!algorithm.ok()) continue;
    if (!(*algorithm)->corrects_lag()) return 0;
    any = true;
  }
  return any ? kCorrectedLag : 0;
}

SampledAhead AheadOf(const std::vector<policy::AlgorithmSpec>& algorithms, int64_t max_policy_lag) {
  std::optional<SampledAhead> least;
  for (size_t policy = 0; policy < algorithms.size(); ++policy) {
    const absl::StatusOr<const Algorithm*> algorithm = FindAlgorithm(algorithms[policy].name);
    if (!algorithm.ok()) continue;
    const std::optional<learner::FeedSpec> feed = (*algorithm)->Feed(algorithms[policy]);
    SampledAhead here{learner::AheadFor(max_policy_lag), policy, ""};
    if (feed.has_value()) here = {feed->max_ahead, policy, feed->name};
    if (!least.has_value() || here.iterations < least->iterations) least = std::move(here);
  }
  return least.value_or(SampledAhead{learner::AheadFor(max_policy_lag)});
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
