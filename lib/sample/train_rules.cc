#include "lib/sample/train_rules.h"

#include <algorithm>
#include <utility>

#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_mapping.h"

namespace troupe::sample {
namespace {

using policy::PolicySlot;

bool AgainstOthers(const Trajectory& trajectory, const PoliciesOfRun& /*policies*/) {
  return std::any_of(trajectory.agents.begin(), trajectory.agents.end(), [&trajectory](const AgentEntry& agent) {
    return agent.slot != trajectory.slot && agent.policy != trajectory.policy;
  });
}

bool SelfPlay(const Trajectory& trajectory, const PoliciesOfRun& policies) {
  return !AgainstOthers(trajectory, policies);
}

constexpr TrajectoryPredicate kPredicates[] = {
    {"against_others", AgainstOthers},
    {"self_play", SelfPlay},
};

bool NamesPolicy(const std::vector<std::string>& names, const policy::PolicyId& id) {
  return std::any_of(names.begin(), names.end(),
                     [&id](const std::string& name) { return policy::GlobMatches(name, id.value()); });
}

}  // namespace

absl::StatusOr<const TrajectoryPredicate*> FindTrajectoryPredicate(std::string_view name) {
  std::vector<std::string> names;
  for (const TrajectoryPredicate& predicate : kPredicates) {
    if (predicate.name == name) return &predicate;
    names.emplace_back(predicate.name);
  }
  return base::NoSuchName("predicate", name, names);
}

absl::StatusOr<TrainRules> TrainRules::Make(std::vector<TrainRule> rules) {
  TrainRules made;
  for (const TrainRule& rule : rules) {
    made.bound_.emplace_back();
    if (rule.function.empty()) continue;
    TROUPE_ASSIGN_OR_RETURN(made.bound_.back().predicate, FindTrajectoryPredicate(rule.function));
  }
  made.rules_ = std::move(rules);
  return made;
}

void TrainRules::Bind(PoliciesOfRun policies) {
  policies_ = std::move(policies);
  for (size_t r = 0; r < rules_.size(); ++r) {
    const TrainRule& rule = rules_[r];
    Bound& bound = bound_[r];
    bound.policies = policy::BySlot<uint8_t>(policies_.size());
    bound.only_against = bound.policies;
    std::vector<PolicySlot> newest;
    for (const PolicySlot slot : policies_.ids()) {
      const PolicyOfRun& policy = policies_[slot];
      if (policy.id.value().empty()) continue;
      bound.only_against[slot] = NamesPolicy(rule.only_against, policy.id) ? 1 : 0;
      if (!rule.policies.empty() && !NamesPolicy(rule.policies, policy.id)) continue;
      if (rule.only_newest == 0) {
        bound.policies[slot] = 1;
      } else if (policy.plays) {
        newest.push_back(slot);
      }
    }
    std::sort(newest.begin(), newest.end(), [this](PolicySlot a, PolicySlot b) {
      return policies_[a].since != policies_[b].since ? policies_[a].since > policies_[b].since : b < a;
    });
    const size_t count = std::min(newest.size(), static_cast<size_t>(rule.only_newest));
    for (size_t i = 0; i < count; ++i) bound.policies[newest[i]] = 1;
  }
}

bool TrainRules::Holds(size_t rule, const Trajectory& trajectory) const {
  const Bound& bound = bound_[rule];
  if (!bound.policies.Contains(trajectory.policy) || bound.policies[trajectory.policy] == 0) return false;
  const auto is_opponent = [&](const AgentEntry& agent) {
    return agent.slot != trajectory.slot && bound.only_against.Contains(agent.policy) &&
           bound.only_against[agent.policy] != 0;
  };
  if (!rules_[rule].only_against.empty() &&
      std::none_of(trajectory.agents.begin(), trajectory.agents.end(), is_opponent)) {
    return false;
  }
  return bound.predicate == nullptr || bound.predicate->trains(trajectory, policies_);
}

bool TrainRules::Trains(const Trajectory& trajectory) const {
  if (rules_.empty()) return true;
  for (size_t r = 0; r < rules_.size(); ++r) {
    if (Holds(r, trajectory)) return true;
  }
  return false;
}

}  // namespace troupe::sample
