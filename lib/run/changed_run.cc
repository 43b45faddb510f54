#include "lib/run/changed_run.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/config/frozen_weights.h"
#include "lib/config/parse_policy_mapping.h"
#include "lib/config/run_config.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/policy_class.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_spec.h"
#include "lib/storage/checkpoint_weights.h"
#include "lib/storage/run_folder.h"

namespace troupe::run {
namespace {

constexpr char kMapping[] = "multi_agent.policy_mapping";

absl::Status At(const std::string& place, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(place, ": ", std::string(status.message())));
}

/// The overrides without those of the mapping, which may name policies that the configuration does not know.
struct Overrides {
  std::vector<std::string> config;
  std::optional<std::string> mapping;  ///< YAML; the last one
};
Overrides Sort(const std::vector<std::string>& overrides) {
  Overrides sorted;
  const std::string prefix = absl::StrCat(kMapping, "=");
  for (const std::string& text : overrides) {
    if (text.starts_with(prefix)) {
      sorted.mapping = text.substr(prefix.size());
    } else {
      sorted.config.push_back(text);
    }
  }
  return sorted;
}

/// Changes the class of one policy; its slot.
absl::StatusOr<size_t> ChangeClass(const std::string& text, std::vector<policy::PolicySpec>* specs) {
  const std::string place = absl::StrCat("--policy ", base::LogSafe(text, 160));
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": got no \"=\", expected ID=CLASS; write --policy ID=random"));
  }
  const std::string id = text.substr(0, equals);
  std::vector<std::string> known;
  for (const policy::PolicySpec& spec : *specs) known.push_back(spec.id.value());
  size_t slot = 0;
  while (slot < known.size() && known[slot] != id) ++slot;
  if (slot == known.size()) return At(place, base::NoSuchName("policy", id, known));
  absl::StatusOr<policy::PolicyClass> parsed = policy::ParsePolicyClass(text.substr(equals + 1));
  if (!parsed.ok()) return At(place, parsed.status());
  policy::PolicySpec& spec = (*specs)[slot];
  if (parsed->trainable() && !spec.policy_class.has_weights()) {
    return absl::FailedPreconditionError(absl::StrCat(place, ": got class ", parsed->ToString(),
                                                      ", but the policy is of class ",
                                                      base::LogSafe(spec.policy_class.ToString(), 128),
                                                      " in the run and has no weights, expected a class without, or "
                                                      "checkpoint:PATH#ID"));
  }
  spec.policy_class = *std::move(parsed);
  if (!spec.policy_class.has_weights()) {
    policy::DropNetworks(&spec);
    if (const absl::Status plays = inference::CheckWithoutWeights(spec); !plays.ok()) return At(place, plays);
  }
  return slot;
}

/// Whether every policy fits every agent that the rules may give it.
absl::Status CheckFit(const config::ResolvedRun& run, const std::string& place) {
  const auto check = [&](const env::AgentSpec& agent, const policy::PolicySpec& spec) -> absl::Status {
    const auto differ = [&](const char* what, const std::string& got, const std::string& expected) {
      return absl::FailedPreconditionError(
          absl::StrCat(place, ": policy \"", spec.id.value(), "\" was trained for ", what, " ", expected,
                       ", but agent \"", agent.id.value(), "\", which it is to play, has ", got,
                       "; change what leaves spaces and agents as they are, or map the agent to another policy"));
    };
    if (agent.observation_space != spec.observation_space) {
      return differ("the observation space", agent.observation_space.ToString(), spec.observation_space.ToString());
    }
    if (agent.action_space != spec.action_space) {
      return differ("the action space", agent.action_space.ToString(), spec.action_space.ToString());
    }
    if (spec.agent_id_size > 0 && spec.agent_id_size != run.env_spec.num_agents()) {
      return differ("a one-hot of agents of size", absl::StrCat(run.env_spec.num_agents()),
                    absl::StrCat(spec.agent_id_size));
    }
    return absl::OkStatus();
  };
  for (const env::AgentSpec& agent : run.env_spec.possible_agents) {
    const policy::MappingRule* const rule = policy::FirstMatch(run.mapping_rules, agent.id.value());
    if (rule == nullptr) continue;
    for (const policy::WeightedPolicy& weighted : rule->policies) {
      for (const policy::PolicySpec& spec : run.policies) {
        if (spec.id == weighted.policy) TROUPE_RETURN_IF_ERROR(check(agent, spec));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RunPolicies> Load(const std::string& folder, const std::string& checkpoint, const RunChanges& changes,
                                 const env::EnvRegistry& registry) {
  const Overrides overrides = Sort(changes.overrides);
  RunPolicies loaded;
  TROUPE_ASSIGN_OR_RETURN(static_cast<RunCheckpoint&>(loaded),
                          ReadRunCheckpoint(folder, checkpoint, registry, overrides.config));
  config::ResolvedRun& run = loaded.run;
  const std::string mapping_place = absl::StrCat("--set ", kMapping);
  if (overrides.mapping.has_value()) {
    TROUPE_ASSIGN_OR_RETURN(run.mapping_rules,
                            config::ParsePolicyMapping(*overrides.mapping, mapping_place, run.agent_ids()));
  }
  const auto mapped = policy::MakeRuleMapping(run.mapping_rules, run.agent_ids(), run.policy_ids());
  if (!mapped.ok()) return At(overrides.mapping.has_value() ? mapping_place : kMapping, mapped.status());

  const std::vector<policy::PolicySpec> trained = run.policies;
  std::vector<bool> changed(trained.size(), false);
  for (const std::string& text : changes.classes) {
    TROUPE_ASSIGN_OR_RETURN(const size_t slot, ChangeClass(text, &run.policies));
    changed[slot] = true;
  }
  std::string place = folder;
  if (overrides.mapping.has_value()) place = mapping_place;
  if (!overrides.config.empty()) place = absl::StrCat("--set ", base::LogSafe(overrides.config.back(), 160));
  TROUPE_RETURN_IF_ERROR(CheckFit(run, place));
  run.schema.policies = policy::BySlot<policy::PolicySpec>(run.policies);

  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<storage::CheckpointWeights> weights,
                          storage::CheckpointWeights::Open(storage::FileSystem::Posix(), loaded.checkpoint));
  loaded.weights.resize(run.policies.size());
  for (size_t slot = 0; slot < run.policies.size(); ++slot) {
    const policy::PolicySpec& spec = run.policies[slot];
    if (!spec.policy_class.has_weights()) continue;
    const bool elsewhere = changed[slot] && spec.policy_class.kind == policy::PolicyClass::Kind::kCheckpoint;
    const absl::StatusOr<policy::PolicyState> state =
        elsewhere
            ? config::LoadPolicy(spec.policy_class.path, spec.policy_class.source, spec, config::PolicyPart::kWeights)
            : weights->Read(trained[slot]);
    if (!state.ok()) return elsewhere ? At(absl::StrCat("--policy ", spec.id.value()), state.status()) : state.status();
    TROUPE_ASSIGN_OR_RETURN(loaded.weights[slot], policy::SnapshotOf(*state, spec));
  }
  return loaded;
}

}  // namespace

absl::StatusOr<std::optional<config::ResolvedRun>> ResolveEvaluation(const config::ResolvedRun& run,
                                                                     const env::EnvRegistry& registry) {
  constexpr char kKey[] = "evaluation.env";
  const std::vector<std::string> overrides = run.config.EvaluationOverrides();
  if (overrides.empty()) return std::nullopt;
  const std::string place = absl::StrCat(run.config.Where(kKey), ": ", kKey);
  const absl::StatusOr<config::RunConfig> config =
      config::RunConfig::FromYaml(run.config.ToYaml(), "the run's configuration", overrides);
  if (!config.ok()) return At(place, config.status());
  absl::StatusOr<config::ResolvedRun> resolved = config::ResolveRun(*config, registry);
  if (!resolved.ok()) return At(place, resolved.status());
  if (resolved->agent_ids() != run.agent_ids()) {
    return absl::FailedPreconditionError(
        absl::StrCat(place, ": got an environment with the agents ", absl::StrJoin(resolved->agent_ids(), ", "),
                     ", expected those that train: ", absl::StrJoin(run.agent_ids(), ", ")));
  }
  resolved->policies = run.policies;
  resolved->mapping_rules = run.mapping_rules;
  resolved->schema.policies = policy::BySlot<policy::PolicySpec>(run.policies);
  TROUPE_RETURN_IF_ERROR(CheckFit(*resolved, place));
  return *std::move(resolved);
}

absl::StatusOr<RunPolicies> LoadChangedRun(const std::string& folder, const std::string& which,
                                           const RunChanges& changes, const env::EnvRegistry& registry) {
  const auto load = [&](const std::string& checkpoint) { return Load(folder, checkpoint, changes, registry); };
  return storage::ReadNamedCheckpoint(storage::FileSystem::Posix(), folder, which, load);
}

}  // namespace troupe::run
