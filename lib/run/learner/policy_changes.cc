#include "lib/run/learner/policy_changes.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/resolve_algorithms.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/policy_class.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_spec.h"

namespace troupe::run {
namespace {

using policy::PolicyClass;
using policy::PolicyEntry;
using policy::PolicySlot;
using policy::PolicySpec;
using policy::PolicyState;
using policy::PolicyTable;
using policy::PolicyTablePtr;

/// Every agent must get policies of its own spaces only, or its worker could not act.
absl::Status CheckSpaces(const PolicyTable& table, const env::EnvSpec& env) {
  for (const env::AgentSpec& agent : env.possible_agents) {
    const policy::MappingRule* const rule = policy::FirstMatch(table.rules(), agent.id.value());
    if (rule == nullptr) continue;
    for (const policy::WeightedPolicy& weighted : rule->policies) {
      TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, table.SlotOf(weighted.policy));
      const PolicySpec& spec = table.Find(slot)->spec;
      const auto differ = [&](const char* what, const std::string& got, const std::string& expected) {
        return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\" cannot play agent \"",
                                                       agent.id.value(), "\": its ", what, " is ", got, ", expected ",
                                                       expected));
      };
      if (spec.observation_space != agent.observation_space) {
        return differ("observation space", spec.observation_space.ToString(), agent.observation_space.ToString());
      }
      if (spec.action_space != agent.action_space) {
        return differ("action space", spec.action_space.ToString(), agent.action_space.ToString());
      }
      if (spec.has_action_mask && !agent.has_action_mask) return differ("action mask", "used", "none: it has none");
    }
  }
  return absl::OkStatus();
}

/// "are trained by ppo and a2c", where the configuration says that of two policies that are trained; else nothing.
std::string AlgorithmDifference(const config::ResolvedRun& run, const PolicySpec& one, const PolicySpec& other) {
  const auto name_of = [&run](const PolicySpec& spec) -> std::string {
    for (size_t slot = 0; slot < run.algorithms.size(); ++slot) {
      if (run.policies[slot].id == spec.id && spec.policy_class.trainable()) return run.algorithms[slot].name;
    }
    return "";
  };
  const std::string first = name_of(one);
  const std::string second = name_of(other);
  if (first.empty() || second.empty() || first == second) return "";
  return absl::StrCat("they are trained by ", first, " and ", second);
}

/// The policy that one of this class could be like, because all others are: in spaces, and, where it has networks, in
/// what these are and in the algorithm that trains them.
absl::StatusOr<PolicySlot> Common(const PolicyTable& table, const PolicyClass& policy_class,
                                  const config::ResolvedRun& run) {
  const bool with_weights = policy_class.has_weights();
  std::optional<PolicySlot> first;
  for (const PolicySlot slot : table.entries().ids()) {
    const PolicyEntry* const entry = table.Find(slot);
    if (entry == nullptr || !entry->active()) continue;
    if (with_weights && !entry->spec.policy_class.has_weights()) continue;
    if (!first.has_value()) {
      first = slot;
      continue;
    }
    const PolicySpec& other = table.Find(*first)->spec;
    const bool spaces_differ =
        entry->spec.observation_space != other.observation_space || entry->spec.action_space != other.action_space;
    std::string difference = with_weights    ? policy::FirstDifference(entry->spec, other)
                             : spaces_differ ? std::string("their spaces differ")
                                             : std::string();
    if (difference.empty() && policy_class.trainable()) difference = AlgorithmDifference(run, other, entry->spec);
    if (difference.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("policies \"", other.id.value(), "\" and \"", entry->spec.id.value(),
                                                   "\" are not of one form (", difference,
                                                   "); say which one the new policy is like"));
  }
  if (first.has_value()) return *first;
  return absl::InvalidArgumentError("no policy of the run has networks that the new one could be like");
}

absl::StatusOr<PolicySlot> BaseOf(const policy::AddPolicy& add, const PolicyTable& now, const PolicyClass& policy_class,
                                  const config::ResolvedRun& run) {
  if (!add.like.value().empty()) return now.SlotOf(add.like);
  if (!add.copy_of.value().empty()) return now.SlotOf(add.copy_of);
  if (add.replace) {
    TROUPE_ASSIGN_OR_RETURN(const PolicySlot replaced, now.SlotOf(add.id));
    if (!policy_class.has_weights() || now.Find(replaced)->spec.policy_class.has_weights()) return replaced;
  }
  return Common(now, policy_class, run);
}

absl::StatusOr<PolicySpec> SpecOf(const policy::AddPolicy& add, const PolicySpec& base, PolicyClass policy_class) {
  PolicySpec spec = base;
  spec.id = add.id;
  spec.policy_class = std::move(policy_class);
  if (spec.policy_class.has_weights()) {
    if (base.policy_class.has_weights()) return spec;
    return absl::InvalidArgumentError(absl::StrCat(
        "policy \"", add.id.value(), "\" of class ", base::LogSafe(spec.policy_class.ToString()), " is to be like \"",
        base.id.value(), "\" of class ", base::LogSafe(base.policy_class.ToString()), ", which has no networks"));
  }
  // As in a configuration: nothing of networks, and the environment's own actions.
  policy::DropNetworks(&spec);
  TROUPE_RETURN_IF_ERROR(inference::CheckWithoutWeights(spec));
  return spec;
}

absl::StatusOr<PolicyState> CopyOf(const policy::AddPolicy& add, const PolicySpec& spec, const PolicyTable& now,
                                   const PolicySources& sources) {
  TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, now.SlotOf(add.copy_of));
  const PolicySpec& source = now.Find(slot)->spec;
  if (!source.policy_class.has_weights()) {
    return absl::FailedPreconditionError(absl::StrCat("policy \"", source.id.value(), "\" is of class ",
                                                      base::LogSafe(source.policy_class.ToString()),
                                                      ", which has no weights to copy"));
  }
  if (const std::string difference = policy::FirstDifference(source, spec); !difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("policy \"", source.id.value(), "\" cannot be copied: ", difference));
  }
  return sources.trainer->ExportState(slot);
}

/// What the weights of a new policy come from: at most one thing.
absl::Status CheckSources(const policy::AddPolicy& add, const PolicySpec& spec) {
  const bool copies = !add.copy_of.value().empty();
  const bool imports = !add.import_from.empty();
  const bool is_checkpoint = spec.policy_class.kind == PolicyClass::Kind::kCheckpoint;
  if (copies + imports + is_checkpoint <= 1 && ((!copies && !imports) || spec.policy_class.has_weights())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("policy \"", spec.id.value(), "\" of class ", base::LogSafe(spec.policy_class.ToString()),
                   copies && imports ? ": got a policy to copy and one to import, expected one of them"
                                     : ": got a policy to start from, expected none, or class trained"));
}

absl::StatusOr<std::optional<PolicyImport>> ImportOf(const policy::AddPolicy& add, const PolicySpec& spec) {
  if (!add.import_from.empty()) {
    TROUPE_ASSIGN_OR_RETURN(const PolicyClass from, policy::ParsePolicyClass("checkpoint:" + add.import_from));
    return PolicyImport{from.path, from.source, spec, config::PolicyPart::kAll};
  }
  if (spec.policy_class.kind != PolicyClass::Kind::kCheckpoint) return std::nullopt;
  return PolicyImport{spec.policy_class.path, spec.policy_class.source, spec, config::PolicyPart::kWeights};
}

absl::StatusOr<PolicyState> StateOf(const policy::AddPolicy& add, const PolicySpec& spec, const PolicyTable& now,
                                    int64_t revision, const PolicySources& sources) {
  if (!add.copy_of.value().empty()) return CopyOf(add, spec, now, sources);
  TROUPE_ASSIGN_OR_RETURN(const std::optional<PolicyImport> import, ImportOf(add, spec));
  if (import.has_value()) {
    if (sources.imported == nullptr) return absl::InternalError("the policy to import has not been read");
    // It was read for what the policy was to be then.
    TROUPE_RETURN_IF_ERROR(sources.imported->Validate(spec));
    return *sources.imported;
  }
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // spreads revisions over all seeds
  // The trainer knows what it is like.
  return sources.draw(spec, policy::AlgorithmSpec(), sources.run->seed + kOdd * static_cast<uint64_t>(revision));
}

/// A policy that is to come, but for its state.
struct PlannedPolicy {
  PolicySlot base;  ///< what it is like
  PolicySpec spec;
  PolicyTablePtr table;  ///< with it
};

absl::StatusOr<PlannedPolicy> Plan(const policy::AddPolicy& add, const PolicyTable& now, const PolicySources& sources) {
  TROUPE_RETURN_IF_ERROR(policy::ValidatePolicyId(add.id.value()));
  TROUPE_ASSIGN_OR_RETURN(PolicyClass policy_class,
                          policy::ParsePolicyClass(add.policy_class.empty() ? "trained" : add.policy_class));
  // Before what it is made of: who adds one twice, or replaces one that is not there, should hear of that.
  if (add.replace) {
    TROUPE_RETURN_IF_ERROR(now.SlotOf(add.id).status());
  } else if (now.FindSlot(add.id).has_value()) {
    return absl::AlreadyExistsError(absl::StrCat("policy \"", add.id.value(), "\" is one of the run's already"));
  }
  PlannedPolicy planned;
  TROUPE_ASSIGN_OR_RETURN(planned.base, BaseOf(add, now, policy_class, *sources.run));
  TROUPE_ASSIGN_OR_RETURN(planned.spec, SpecOf(add, now.Find(planned.base)->spec, std::move(policy_class)));
  const bool trains = add.trains && planned.spec.policy_class.trainable();
  std::vector<std::string> settings;
  if (planned.spec.policy_class.trainable()) settings = now.Find(planned.base)->settings;
  TROUPE_ASSIGN_OR_RETURN(planned.table, add.replace ? now.Replace(planned.spec, std::move(settings))
                                                     : now.Add(planned.spec, trains, std::move(settings)));
  if (add.replace && !add.trains) {
    TROUPE_ASSIGN_OR_RETURN(planned.table, planned.table->SetTrains(add.id, false));
  }
  TROUPE_RETURN_IF_ERROR(CheckSpaces(*planned.table, sources.run->env_spec));
  TROUPE_RETURN_IF_ERROR(CheckSources(add, planned.spec));
  return planned;
}

absl::StatusOr<ResolvedChange> Resolve(const policy::AddPolicy& add, const PolicyTable& now,
                                       const PolicySources& sources) {
  TROUPE_ASSIGN_OR_RETURN(PlannedPolicy planned, Plan(add, now, sources));
  learner::NewPolicy fresh;
  fresh.slot = *planned.table->FindSlot(add.id);
  fresh.like = planned.base;
  TROUPE_ASSIGN_OR_RETURN(fresh.state, StateOf(add, planned.spec, now, planned.table->revision(), sources));
  fresh.state.id = planned.spec.id;
  ResolvedChange resolved;
  resolved.table = std::move(planned.table);
  resolved.change.added.push_back(std::move(fresh));
  return resolved;
}

absl::StatusOr<ResolvedChange> Resolve(const policy::RemovePolicy& remove, const PolicyTable& now,
                                       const PolicySources& /*sources*/) {
  TROUPE_ASSIGN_OR_RETURN(PolicyTablePtr table, now.Remove(remove.id));
  return ResolvedChange{std::move(table)};
}

absl::StatusOr<ResolvedChange> Resolve(const policy::SetPoliciesTrain& set, const PolicyTable& now,
                                       const PolicySources& /*sources*/) {
  if (set.ids.empty()) return absl::InvalidArgumentError("got no policy to freeze or thaw, expected at least one");
  PolicyTablePtr table;
  for (const policy::PolicyId& id : set.ids) {
    TROUPE_ASSIGN_OR_RETURN(table, (table == nullptr ? now : *table).SetTrains(id, set.trains));
  }
  return ResolvedChange{std::move(table)};
}

absl::StatusOr<ResolvedChange> Resolve(const policy::SetTrainable& set, const PolicyTable& now,
                                       const PolicySources& /*sources*/) {
  TROUPE_ASSIGN_OR_RETURN(PolicyTablePtr table, now.SetTrainable(set.ids));
  return ResolvedChange{std::move(table)};
}

absl::StatusOr<ResolvedChange> Resolve(const policy::SetPolicy& set, const PolicyTable& now,
                                       const PolicySources& sources) {
  if (set.settings.empty()) return absl::InvalidArgumentError("got no setting, expected at least one, KEY=VALUE");
  ResolvedChange resolved;
  TROUPE_ASSIGN_OR_RETURN(resolved.table, now.Set(set.id, set.settings));
  const PolicySlot slot = *resolved.table->FindSlot(set.id);
  learner::NewAlgorithm& next = resolved.change.algorithm.emplace();
  next.slot = slot;
  TROUPE_ASSIGN_OR_RETURN(next.algorithm, config::AlgorithmWith(*sources.run, sources.configured(slot),
                                                                resolved.table->Find(slot)->settings));
  return resolved;
}

absl::StatusOr<ResolvedChange> Resolve(const policy::SetMapping& set, const PolicyTable& now,
                                       const PolicySources& sources) {
  TROUPE_ASSIGN_OR_RETURN(PolicyTablePtr table, now.SetMapping(set.rules));
  TROUPE_RETURN_IF_ERROR(CheckSpaces(*table, sources.run->env_spec));
  return ResolvedChange{std::move(table)};
}

}  // namespace

absl::StatusOr<PolicyPlan> PlanPolicyChange(const policy::PolicyChange& change, const PolicyTable& now,
                                            const PolicySources& sources) {
  PolicyPlan plan;
  if (const auto* const add = std::get_if<policy::AddPolicy>(&change)) {
    TROUPE_ASSIGN_OR_RETURN(PlannedPolicy planned, Plan(*add, now, sources));
    TROUPE_ASSIGN_OR_RETURN(plan.import, ImportOf(*add, planned.spec));
    plan.table = std::move(planned.table);
    return plan;
  }
  TROUPE_ASSIGN_OR_RETURN(ResolvedChange resolved, ResolvePolicyChange(change, now, sources));
  plan.table = std::move(resolved.table);
  return plan;
}

absl::StatusOr<ResolvedChange> ResolvePolicyChange(const policy::PolicyChange& change, const PolicyTable& now,
                                                   const PolicySources& sources) {
  return std::visit([&](const auto& asked) { return Resolve(asked, now, sources); }, change);
}

}  // namespace troupe::run
