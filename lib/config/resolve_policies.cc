#include "lib/config/resolve_policies.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/overrides.h"
#include "lib/config/parse_policy_mapping.h"
#include "lib/config/resolve_networks.h"
#include "lib/config/schema.h"
#include "lib/policy/mapping_function.h"
#include "lib/policy/policy_class.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/python_callable.h"
#include "proto/troupe/v1/config.pb.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

using policy::MappingRule;
using policy::PolicyClass;
using policy::PolicyId;
using policy::PolicySlot;
using policy::PolicySpec;

constexpr char kDefaultPolicy[] = "default_policy";

std::vector<std::string> AgentIds(const env::EnvSpec& env) {
  std::vector<std::string> ids;
  for (const env::AgentSpec& agent : env.possible_agents) ids.push_back(agent.id.value());
  return ids;
}

/// Policy ids and rules before they have met each other.
struct Names {
  std::vector<PolicyId> policies;
  std::vector<MappingRule> rules;
};

Names OnePolicyPerAgent(const env::EnvSpec& env) {
  Names names;
  for (const env::AgentSpec& agent : env.possible_agents) {
    names.policies.emplace_back(agent.id.value());
    names.rules.push_back({agent.id.value(), {{names.policies.back()}}});
  }
  return names;
}

absl::StatusOr<Names> ResolveNames(const RunConfig& config, const env::EnvSpec& env) {
  const v1::MultiAgentConfig& multi_agent = config.proto().multi_agent();
  const v1::PolicyMapping& mapping = multi_agent.policy_mapping();
  std::vector<PolicyId> listed;
  for (const v1::PolicyConfig& policy : multi_agent.policies()) listed.emplace_back(policy.id());

  const bool per_agent = mapping.per_agent() || (listed.empty() && mapping.rules().empty() &&
                                                 !config.proto().algorithm().use_parameter_sharing());
  if (per_agent) {
    Names names = OnePolicyPerAgent(env);
    for (const PolicyId& id : names.policies) {
      const absl::Status status = policy::ValidatePolicyId(id.value());
      if (!status.ok()) {
        return config.KeyError(
            "multi_agent.policy_mapping",
            absl::StrCat("an agent's id cannot be the name of its policy: ", std::string(status.message())));
      }
      if (!listed.empty() && std::find(listed.begin(), listed.end(), id) == listed.end()) {
        return config.KeyError(
            "multi_agent.policies",
            absl::StrCat("per_agent needs a policy named as each agent, got none for \"", id.value(), "\""));
      }
    }
    if (!listed.empty()) names.policies = listed;
    return names;
  }

  Names names;
  names.policies = listed;
  names.rules = MappingRules(mapping);
  for (const MappingRule& rule : names.rules) {
    for (const policy::WeightedPolicy& weighted : rule.policies) {
      if (listed.empty() &&
          std::find(names.policies.begin(), names.policies.end(), weighted.policy) == names.policies.end()) {
        names.policies.push_back(weighted.policy);
      }
    }
  }
  if (names.policies.empty()) names.policies.emplace_back(kDefaultPolicy);
  if (names.rules.empty()) {
    if (names.policies.size() == 1) {
      names.rules.push_back({"*", {{names.policies[0]}}});
      return names;
    }
    // In order, as Tianshou's MultiAgentPolicyManager pairs them.
    if (names.policies.size() != env.possible_agents.size()) {
      return config.KeyError("multi_agent.policy_mapping",
                             absl::StrCat("is missing, and ", names.policies.size(), " policies do not pair with ",
                                          env.possible_agents.size(), " agents (", absl::StrJoin(AgentIds(env), ", "),
                                          "), expected as many, or rules; per_agent gives every agent its own"));
    }
    for (size_t i = 0; i < names.policies.size(); ++i) {
      names.rules.push_back({env.possible_agents[i].id.value(), {{names.policies[i]}}});
    }
  }
  return names;
}

/// The slot of a policy that `key` names.
absl::StatusOr<PolicySlot> FindPolicy(const RunConfig& config, const std::string& key, const PolicyId& id,
                                      const std::vector<PolicyId>& policies) {
  const auto found = std::find(policies.begin(), policies.end(), id);
  if (found != policies.end()) return PolicySlot(static_cast<int32_t>(found - policies.begin()));
  std::vector<std::string> known;
  for (const PolicyId& policy : policies) known.push_back(policy.value());
  const std::string nearest = base::NearestName(id.value(), known);
  return config.KeyError(key,
                         absl::StrCat("got policy \"", id.value(), "\", expected one that multi_agent.policies lists; ",
                                      nearest.empty() ? absl::StrCat("these are ", absl::StrJoin(known, ", "))
                                                      : absl::StrCat("the nearest is \"", nearest, "\"")));
}

absl::StatusOr<PolicyClass> ClassOf(const RunConfig& config, const PolicyId& id) {
  const v1::PolicyConfig* policy = FindPolicyConfig(config, id);
  if (policy == nullptr || policy->class_().empty()) return PolicyClass{};
  return policy::ParsePolicyClass(policy->class_());
}

bool HasWildcard(const std::string& glob) { return glob.find_first_of("*?") != std::string::npos; }

/// A name in a rule of policies_to_train must be one of a policy; a glob may wait for policies that come later.
template <typename Strings>
absl::Status CheckRuleNames(const RunConfig& config, const std::string& key, const Strings& names,
                            const std::vector<PolicyId>& policies) {
  for (const std::string& name : names) {
    if (!HasWildcard(name)) TROUPE_RETURN_IF_ERROR(FindPolicy(config, key, PolicyId(name), policies).status());
  }
  return absl::OkStatus();
}

/// A function in Python decides by itself.
absl::Status CheckTrainFunction(const RunConfig& config, const v1::PoliciesToTrain& trains, const v1::TrainRule& rule) {
  const std::string key = "multi_agent.policies_to_train";
  const bool alone = trains.rules_size() == 1 && trains.ids().empty() && rule.policies().empty() &&
                     rule.only_against().empty() && rule.only_newest() == 0;
  if (!alone) {
    return config.KeyError(key, absl::StrCat("got ", base::LogSafe(rule.function()),
                                             " beside other conditions or entries, expected a function in Python "
                                             "alone: policies_to_train: python:MODULE:NAME"));
  }
  const absl::Status named = policy::ValidatePythonName(rule.function());
  return named.ok() ? named : config.KeyError(key, std::string(named.message()));
}

/// policies_to_train as rules; none where all trajectories of who trains are trained on.
absl::StatusOr<std::vector<sample::TrainRule>> ResolveTrainRules(const RunConfig& config,
                                                                 const std::vector<PolicyId>& policies) {
  const v1::PoliciesToTrain& trains = config.proto().multi_agent().policies_to_train();
  const std::string key = "multi_agent.policies_to_train";
  std::vector<sample::TrainRule> rules;
  if (trains.rules().empty()) return rules;
  if (!trains.ids().empty()) rules.push_back({.policies = {trains.ids().begin(), trains.ids().end()}});
  for (const v1::TrainRule& rule : trains.rules()) {
    if (policy::IsPythonName(rule.function())) TROUPE_RETURN_IF_ERROR(CheckTrainFunction(config, trains, rule));
    TROUPE_RETURN_IF_ERROR(CheckRuleNames(config, JoinKey(key, "policies"), rule.policies(), policies));
    TROUPE_RETURN_IF_ERROR(CheckRuleNames(config, JoinKey(key, "only_against"), rule.only_against(), policies));
    rules.push_back({{rule.policies().begin(), rule.policies().end()},
                     {rule.only_against().begin(), rule.only_against().end()},
                     rule.only_newest(),
                     rule.function()});
  }
  if (policy::IsPythonName(rules.back().function)) return rules;
  if (const auto made = sample::TrainRules::Make(rules); !made.ok()) {
    return config.KeyError(JoinKey(key, "function"), std::string(made.status().message()));
  }
  return rules;
}

absl::StatusOr<std::vector<bool>> ResolveTrains(const RunConfig& config, const Names& names,
                                                const std::vector<sample::TrainRule>& rules) {
  const v1::MultiAgentConfig& multi_agent = config.proto().multi_agent();
  const std::string key = "multi_agent.policies_to_train";
  std::vector<PolicyClass> classes;
  std::vector<bool> trains;
  for (const PolicyId& id : names.policies) {
    TROUPE_ASSIGN_OR_RETURN(PolicyClass policy_class, ClassOf(config, id));
    const bool named = std::any_of(rules.begin(), rules.end(), [&id](const sample::TrainRule& rule) {
      return rule.policies.empty() || std::any_of(rule.policies.begin(), rule.policies.end(), [&id](const auto& glob) {
               return policy::GlobMatches(glob, id.value());
             });
    });
    trains.push_back((!multi_agent.has_policies_to_train() || named) && policy_class.trainable());
    classes.push_back(std::move(policy_class));
  }
  for (const std::string& id : multi_agent.policies_to_train().ids()) {
    TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, FindPolicy(config, key, PolicyId(id), names.policies));
    const auto place = static_cast<size_t>(slot.value());
    if (!classes[place].trainable()) {
      return config.KeyError(
          key, absl::StrCat("got policy \"", id, "\", which is of class ", base::LogSafe(classes[place].ToString()),
                            " and never trained, expected policies of class trained"));
    }
    trains[place] = true;
  }
  return trains;
}

/// The space that multi_agent.policies gives, or one without value.
absl::StatusOr<space::Space> GivenSpace(const std::string& text) {
  if (text.empty()) return space::Space();
  return space::ParseSpace(text);  // as the loader has read it
}

struct GivenSpaces {
  space::Space observation_space;
  space::Space action_space;

  bool any() const { return observation_space.has_value() || action_space.has_value(); }
  bool Fit(const env::AgentSpec& agent) const {
    return (!observation_space.has_value() || observation_space == agent.observation_space) &&
           (!action_space.has_value() || action_space == agent.action_space);
  }
};
absl::StatusOr<GivenSpaces> SpacesOf(const RunConfig& config, const PolicyId& id) {
  GivenSpaces given;
  const v1::PolicyConfig* const policy = FindPolicyConfig(config, id);
  if (policy == nullptr) return given;
  TROUPE_ASSIGN_OR_RETURN(given.observation_space, GivenSpace(policy->observation_space()));
  TROUPE_ASSIGN_OR_RETURN(given.action_space, GivenSpace(policy->action_space()));
  return given;
}

/// A function may choose any policy that has the agent's spaces; each counts as equally likely. Another answer costs
/// the episode.
absl::StatusOr<std::vector<MappedPolicy>> WhomAFunctionMayChoose(const RunConfig& config, const env::AgentSpec& agent,
                                                                 const std::vector<PolicyId>& policies) {
  std::vector<MappedPolicy> may;
  for (size_t i = 0; i < policies.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(const GivenSpaces given, SpacesOf(config, policies[i]));
    if (given.Fit(agent)) may.push_back({PolicySlot(static_cast<int32_t>(i)), 0});
  }
  if (may.empty()) {
    return config.KeyError("multi_agent.policies",
                           absl::StrCat("no policy has the spaces of agent \"", agent.id.value(),
                                        "\", for which a function chooses one: expected one with ",
                                        agent.observation_space.ToString(), " and ", agent.action_space.ToString()));
  }
  for (MappedPolicy& mapped : may) mapped.probability = 1.0 / static_cast<double>(may.size());
  return may;
}

/// By agent slot, which policies the agent may get, and how likely each is. Where a function may choose among all, but
/// not all have the agent's spaces, a rule of the agent's own names those that do.
absl::StatusOr<std::vector<std::vector<MappedPolicy>>> MapAgents(const RunConfig& config, const env::EnvSpec& env,
                                                                 Names* all_names) {
  Names& names = *all_names;
  const std::vector<std::string> agents = AgentIds(env);
  std::vector<std::vector<MappedPolicy>> of_rule;
  for (const MappingRule& rule : names.rules) {
    const std::string key = JoinKey("multi_agent.policy_mapping", rule.agent_glob);
    if (!rule.function.empty()) {
      if (const absl::Status known = policy::CheckMappingFunction(rule.function); !known.ok()) {
        return config.KeyError(JoinKey(key, "function"), std::string(known.message()));
      }
    }
    double sum = 0;
    for (const policy::WeightedPolicy& weighted : rule.policies) sum += weighted.weight;
    of_rule.emplace_back();
    for (const policy::WeightedPolicy& weighted : rule.policies) {
      TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, FindPolicy(config, key, weighted.policy, names.policies));
      of_rule.back().push_back({slot, weighted.weight / sum});
    }
  }
  // What remains to go wrong is an agent without a rule.
  if (const auto mapping = policy::MakeRuleMapping(names.rules, agents, policy::BySlot<PolicyId>(names.policies));
      !mapping.ok()) {
    return config.KeyError("multi_agent.policy_mapping", std::string(mapping.status().message()));
  }
  std::vector<std::vector<MappedPolicy>> of_agent;
  std::vector<MappingRule> own;
  for (const env::AgentSpec& agent : env.possible_agents) {
    const MappingRule* const rule = policy::FirstMatch(names.rules, agent.id.value());
    of_agent.push_back(of_rule[static_cast<size_t>(rule - names.rules.data())]);
    if (!rule->policies.empty()) continue;
    TROUPE_ASSIGN_OR_RETURN(of_agent.back(), WhomAFunctionMayChoose(config, agent, names.policies));
    if (of_agent.back().size() == names.policies.size()) continue;
    own.push_back({agent.id.value(), {}, rule->function});
    for (const MappedPolicy& may : of_agent.back()) {
      own.back().policies.push_back({names.policies[static_cast<size_t>(may.policy.value())]});
    }
  }
  if (own.size() + names.rules.size() > policy::kMaxMappingRules) {
    return config.KeyError("multi_agent.policy_mapping", absl::StrCat("got a function for ", own.size(),
                                                                      " agents, each with policies of its spaces; "
                                                                      "expected at most ",
                                                                      policy::kMaxMappingRules, " agents and rules"));
  }
  names.rules.insert(names.rules.begin(), own.begin(), own.end());
  return of_agent;
}

/// By policy slot, the agents that may be played by it, as places in possible_agents.
std::vector<std::vector<size_t>> PlayedAgents(const std::vector<std::vector<MappedPolicy>>& policies_of_agent,
                                              size_t num_policies) {
  std::vector<std::vector<size_t>> played(num_policies);
  for (size_t agent = 0; agent < policies_of_agent.size(); ++agent) {
    for (const MappedPolicy& mapped : policies_of_agent[agent]) {
      played[static_cast<size_t>(mapped.policy.value())].push_back(agent);
    }
  }
  return played;
}

/// Checks the spaces that a policy is given against the agents it plays. For one that plays nobody yet, the agents that
/// it could.
absl::Status CompletePlayed(const RunConfig& config, const env::EnvSpec& env, const PolicyId& id,
                            std::vector<size_t>* played) {
  const std::string key = JoinKey("multi_agent.policies", id.value());
  TROUPE_ASSIGN_OR_RETURN(const GivenSpaces given, SpacesOf(config, id));
  const auto differs = [&](const char* name, const space::Space& got, const space::Space& expected,
                           const env::AgentSpec& agent) {
    return config.KeyError(JoinKey(key, name),
                           absl::StrCat("got ", got.ToString(), ", expected ", expected.ToString(), " of agent \"",
                                        agent.id.value(), "\", which policy \"", id.value(), "\" plays"));
  };
  for (const size_t place : *played) {
    const env::AgentSpec& agent = env.possible_agents[place];
    if (given.observation_space.has_value() && given.observation_space != agent.observation_space) {
      return differs("observation_space", given.observation_space, agent.observation_space, agent);
    }
    if (given.action_space.has_value() && given.action_space != agent.action_space) {
      return differs("action_space", given.action_space, agent.action_space, agent);
    }
  }
  if (!played->empty()) return absl::OkStatus();
  for (size_t place = 0; place < env.possible_agents.size(); ++place) {
    if (given.Fit(env.possible_agents[place])) played->push_back(place);
  }
  if (played->empty()) {
    return config.KeyError(JoinKey(key, given.observation_space.has_value() ? "observation_space" : "action_space"),
                           absl::StrCat("policy \"", id.value(), "\" has spaces of no agent: got ",
                                        given.observation_space.ToString(), " and ", given.action_space.ToString(),
                                        ", expected those of one of ", absl::StrJoin(AgentIds(env), ", ")));
  }
  const env::AgentSpec& first = env.possible_agents[played->front()];
  for (const size_t place : *played) {
    const env::AgentSpec& agent = env.possible_agents[place];
    if (agent.observation_space == first.observation_space && agent.action_space == first.action_space) continue;
    return config.KeyError(
        key,
        absl::StrCat("policy \"", id.value(), "\" plays no agent; the agents are ", absl::StrJoin(AgentIds(env), ", "),
                     ", whose spaces differ, so that it needs ", "observation_space and action_space of its own"));
  }
  return absl::OkStatus();
}

/// A space with a part that no action distribution fits, or nothing.
bool HasServableActions(const space::Space& actions) {
  switch (actions.kind()) {
    case space::SpaceKind::kBox:
      return actions.dtype() == tensor::DType::kFloat32 || actions.dtype() == tensor::DType::kFloat64;
    case space::SpaceKind::kDict:
    case space::SpaceKind::kTuple:
      return std::all_of(actions.children().begin(), actions.children().end(), HasServableActions);
    case space::SpaceKind::kNone:
      return false;
    default:
      return true;
  }
}

/// Spaces, mask and one-hot from the agents that play the policy; at least one. What their rewards are discounted by.
absl::Status InferFromAgents(const RunConfig& config, const env::EnvSpec& env, const std::vector<size_t>& played,
                             const SettingsOf& of, PolicySpec* spec) {
  const env::AgentSpec* const first = &env.possible_agents[played.front()];
  for (const size_t place : played) {
    const env::AgentSpec& agent = env.possible_agents[place];
    const auto differ = [&](const char* what, const std::string& one, const std::string& other) {
      return config.KeyError(
          "multi_agent.policy_mapping",
          absl::StrCat("agents \"", first->id.value(), "\" and \"", agent.id.value(), "\" of policy \"",
                       spec->id.value(), "\" have different ", what, ": ", one, " and ", other,
                       ", expected equal ones; give them policies of their own: policy_mapping: "
                       "per_agent, or rules as {\"",
                       first->id.value(), "\": ..., \"*\": ...}"));
    };
    if (agent.observation_space != first->observation_space) {
      return differ("observation spaces", first->observation_space.ToString(), agent.observation_space.ToString());
    }
    if (agent.action_space != first->action_space) {
      return differ("action spaces", first->action_space.ToString(), agent.action_space.ToString());
    }
    if (agent.has_action_mask != first->has_action_mask) return differ("action masks", "one", "none");
  }
  const v1::AlgorithmConfig algorithm = AlgorithmOf(config, of);
  if (!HasServableActions(first->action_space)) {
    return config.KeyError(
        AlgorithmKey(config, of, "name"),
        absl::StrCat(AlgorithmWord(algorithm.name()), " cannot serve the action space ", first->action_space.ToString(),
                     " of agent \"", first->id.value(),
                     "\", expected Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a Dict or Tuple of them"));
  }
  if (algorithm.use_actions_mask()) {
    const std::string key = AlgorithmKey(config, of, "use_actions_mask");
    if (first->action_space.mask_size() == 0) {
      return config.KeyError(
          key, absl::StrCat("got true, but agent \"", first->id.value(), "\" has only continuous actions, ",
                            first->action_space.ToString(), ", expected a discrete one, too"));
    }
    if (!first->has_action_mask) {
      return config.KeyError(
          key, absl::StrCat("got true, but ", env.name, " gives agent \"", first->id.value(), "\" no mask"));
    }
  }
  spec->observation_space = first->observation_space;
  spec->action_space = first->action_space;
  const bool wants_mask = !algorithm.has_use_actions_mask() || algorithm.use_actions_mask();
  spec->has_action_mask = first->has_action_mask && wants_mask;
  spec->agent_id_size = algorithm.use_agent_id() && played.size() > 1 ? env.num_agents() : 0;
  spec->SetCriticAgentId(algorithm.critic_agent_id() && spec->agent_id_size > 0);
  spec->reward_discount = RewardDiscount(algorithm);
  return absl::OkStatus();
}

}  // namespace

double RewardDiscount(const v1::AlgorithmConfig& algorithm) {
  const google::protobuf::FieldDescriptor& entry = OptionsOf(algorithm.name());
  const google::protobuf::FieldDescriptor* const by = FindOption(entry, "discount_by");
  const google::protobuf::FieldDescriptor* const gamma = FindOption(entry, "gamma");
  if (by == nullptr || gamma == nullptr) return 1;
  const google::protobuf::Message& options = algorithm.GetReflection()->GetMessage(algorithm, &entry);
  const bool by_env_step = options.GetReflection()->GetEnumValue(options, by) == v1::DISCOUNT_BY_ENV_STEP;
  const auto& discount = static_cast<const v1::Schedule&>(options.GetReflection()->GetMessage(options, gamma));
  return by_env_step ? discount.initial() : 1;
}

absl::StatusOr<ResolvedPolicies> ResolvePolicies(const RunConfig& config, const env::EnvSpec& env) {
  TROUPE_ASSIGN_OR_RETURN(Names names, ResolveNames(config, env));
  ResolvedPolicies resolved;
  TROUPE_ASSIGN_OR_RETURN(resolved.policies_of_agent, MapAgents(config, env, &names));
  TROUPE_ASSIGN_OR_RETURN(resolved.train_rules, ResolveTrainRules(config, names.policies));
  TROUPE_ASSIGN_OR_RETURN(resolved.trains, ResolveTrains(config, names, resolved.train_rules));
  if (!resolved.train_rules.empty() && policy::IsPythonName(resolved.train_rules.back().function)) {
    resolved.train_function = resolved.train_rules.back().function;
    resolved.train_rules.clear();
  }
  std::vector<std::vector<size_t>> played = PlayedAgents(resolved.policies_of_agent, names.policies.size());
  const std::vector<std::string> agents = AgentIds(env);
  std::vector<std::vector<std::string>> players;
  for (const std::vector<size_t>& places : played) {
    players.emplace_back();
    for (const size_t place : places) players.back().push_back(agents[place]);
  }
  TROUPE_ASSIGN_OR_RETURN(resolved.settings, ResolveSettings(config, agents, names.policies, players));
  for (size_t i = 0; i < names.policies.size(); ++i) {
    const PolicyId& id = names.policies[i];
    if (played[i].size() > 1 && !config.proto().algorithm().use_parameter_sharing()) {
      return config.KeyError("algorithm.use_parameter_sharing",
                             absl::StrCat("got false, but multi_agent gives policy \"", id.value(), "\" to ",
                                          played[i].size(), " agents"));
    }
    TROUPE_RETURN_IF_ERROR(CompletePlayed(config, env, id, &played[i]));
    const SettingsOf& of = resolved.settings[i];
    PolicySpec spec;
    spec.id = id;
    TROUPE_ASSIGN_OR_RETURN(spec.policy_class, ClassOf(config, id));
    SetModel(ModelOf(config, of), HasLayerNorm(AlgorithmOf(config, of).name()), &spec);
    TROUPE_RETURN_IF_ERROR(InferFromAgents(config, env, played[i], of, &spec));
    TROUPE_RETURN_IF_ERROR(spec.policy_class.has_weights() ? FillNetworks(config, env, of, &spec)
                                                           : FillWithoutNetworks(config, of, &spec));
    resolved.specs.push_back(std::move(spec));
  }
  resolved.rules = std::move(names.rules);
  return resolved;
}

}  // namespace troupe::config
