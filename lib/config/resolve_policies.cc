#include "lib/config/resolve_policies.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/config/schema.h"
#include "lib/inference/scripted_actor.h"
#include "lib/policy/policy_class.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

using policy::MappingRule;
using policy::PolicyClass;
using policy::PolicyId;
using policy::PolicySlot;
using policy::PolicySpec;

// The schema's enums have our values, so that they are cast; v1's UNSPECIFIED never gets past the loader.
static_assert(static_cast<int>(policy::Activation::kIdentity) == v1::ACTIVATION_IDENTITY);
static_assert(static_cast<int>(policy::Activation::kTanh) == v1::ACTIVATION_TANH);
static_assert(static_cast<int>(policy::ActionBoundMethod::kNone) == v1::ACTION_BOUND_METHOD_NONE);
static_assert(static_cast<int>(policy::ActionBoundMethod::kTanh) == v1::ACTION_BOUND_METHOD_TANH);

constexpr char kDefaultPolicy[] = "default_policy";

absl::Status KeyError(const RunConfig& config, const std::string& key, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(config.Where(key), ": ", key, ": ", text));
}

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
        return KeyError(
            config, "multi_agent.policy_mapping",
            absl::StrCat("an agent's id cannot be the name of its policy: ", std::string(status.message())));
      }
      if (!listed.empty() && std::find(listed.begin(), listed.end(), id) == listed.end()) {
        return KeyError(
            config, "multi_agent.policies",
            absl::StrCat("per_agent needs a policy named as each agent, got none for \"", id.value(), "\""));
      }
    }
    if (!listed.empty()) names.policies = listed;
    return names;
  }

  Names names;
  names.policies = listed;
  for (const v1::PolicyMappingRule& rule : mapping.rules()) {
    names.rules.push_back({rule.agents(), {}});
    for (const v1::WeightedPolicy& weighted : rule.policies()) {
      const PolicyId id(weighted.policy());
      names.rules.back().policies.push_back({id, weighted.weight()});
      if (listed.empty() && std::find(names.policies.begin(), names.policies.end(), id) == names.policies.end()) {
        names.policies.push_back(id);
      }
    }
  }
  if (names.policies.empty()) names.policies.emplace_back(kDefaultPolicy);
  if (names.rules.empty()) {
    if (names.policies.size() > 1) {
      return KeyError(
          config, "multi_agent.policy_mapping",
          absl::StrCat("is missing, expected rules for ", names.policies.size(), " policies, or per_agent"));
    }
    names.rules.push_back({"*", {{names.policies[0]}}});
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
  return KeyError(config, key,
                  absl::StrCat("got policy \"", id.value(), "\", which multi_agent.policies does not list; ",
                               nearest.empty() ? absl::StrCat("expected one of ", absl::StrJoin(known, ", "))
                                               : absl::StrCat("the nearest is \"", nearest, "\"")));
}

const v1::PolicyConfig* FindConfig(const RunConfig& config, const PolicyId& id) {
  for (const v1::PolicyConfig& policy : config.proto().multi_agent().policies()) {
    if (policy.id() == id.value()) return &policy;
  }
  return nullptr;
}

absl::StatusOr<PolicyClass> ClassOf(const RunConfig& config, const PolicyId& id) {
  const v1::PolicyConfig* policy = FindConfig(config, id);
  if (policy == nullptr || policy->class_().empty()) return PolicyClass{};
  return policy::ParsePolicyClass(policy->class_());
}

absl::StatusOr<std::vector<bool>> ResolveTrains(const RunConfig& config, const Names& names) {
  const v1::MultiAgentConfig& multi_agent = config.proto().multi_agent();
  std::vector<PolicyClass> classes;
  std::vector<bool> trains;
  for (const PolicyId& id : names.policies) {
    TROUPE_ASSIGN_OR_RETURN(PolicyClass policy_class, ClassOf(config, id));
    trains.push_back(!multi_agent.has_policies_to_train() && policy_class.trainable());
    classes.push_back(std::move(policy_class));
  }
  for (const std::string& id : multi_agent.policies_to_train().ids()) {
    const std::string key = "multi_agent.policies_to_train";
    TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, FindPolicy(config, key, PolicyId(id), names.policies));
    const auto place = static_cast<size_t>(slot.value());
    if (!classes[place].trainable()) {
      return KeyError(
          config, key,
          absl::StrCat("got policy \"", id, "\", which is of class ", base::LogSafe(classes[place].ToString()),
                       " and never trained, expected policies of class ppo"));
    }
    trains[place] = true;
  }
  return trains;
}

/// By agent slot, which policies the agent may get, and how likely each is.
absl::StatusOr<std::vector<std::vector<MappedPolicy>>> MapAgents(const RunConfig& config, const env::EnvSpec& env,
                                                                 const Names& names) {
  const std::vector<std::string> agents = AgentIds(env);
  std::vector<std::vector<MappedPolicy>> of_rule;
  for (const MappingRule& rule : names.rules) {
    const std::string key = JoinKey("multi_agent.policy_mapping", rule.agent_glob);
    double sum = 0;
    for (const policy::WeightedPolicy& weighted : rule.policies) sum += weighted.weight;
    of_rule.emplace_back();
    for (const policy::WeightedPolicy& weighted : rule.policies) {
      TROUPE_ASSIGN_OR_RETURN(const PolicySlot slot, FindPolicy(config, key, weighted.policy, names.policies));
      of_rule.back().push_back({slot, weighted.weight / sum});
    }
  }
  // What remains to go wrong is an agent without a rule.
  if (const auto mapping = policy::MakeRuleMapping(names.rules, agents, names.policies); !mapping.ok()) {
    return KeyError(config, "multi_agent.policy_mapping", std::string(mapping.status().message()));
  }
  std::vector<std::vector<MappedPolicy>> of_agent;
  std::vector<int> played(names.policies.size(), 0);
  for (const std::string& agent : agents) {
    const auto rule = std::find_if(names.rules.begin(), names.rules.end(), [&agent](const MappingRule& candidate) {
      return policy::GlobMatches(candidate.agent_glob, agent);
    });
    of_agent.push_back(of_rule[static_cast<size_t>(rule - names.rules.begin())]);
    for (const MappedPolicy& mapped : of_agent.back()) ++played[static_cast<size_t>(mapped.policy.value())];
  }
  for (size_t i = 0; i < played.size(); ++i) {
    if (played[i] == 0) {
      return KeyError(config, JoinKey("multi_agent.policies", names.policies[i].value()),
                      absl::StrCat("policy \"", names.policies[i].value(), "\" plays no agent; the agents are ",
                                   absl::StrJoin(agents, ", ")));
    }
    if (played[i] > 1 && !config.proto().algorithm().use_parameter_sharing()) {
      return KeyError(config, "algorithm.use_parameter_sharing",
                      absl::StrCat("got false, but multi_agent gives policy \"", names.policies[i].value(), "\" to ",
                                   played[i], " agents"));
    }
  }
  return of_agent;
}

policy::Activation ToActivation(v1::Activation activation) { return static_cast<policy::Activation>(activation); }

policy::ModelSpec ToModel(const v1::ModelConfig& model) {
  policy::ModelSpec spec;
  spec.actor_hidden_sizes.assign(model.actor_hidden_sizes().begin(), model.actor_hidden_sizes().end());
  spec.critic_hidden_sizes.assign(model.critic_hidden_sizes().begin(), model.critic_hidden_sizes().end());
  spec.activation = ToActivation(model.activation());
  spec.actor_output_gain = model.actor_output_gain();
  spec.initial_log_std = model.initial_log_std();
  return spec;
}

/// The run's model with a policy's overrides.
policy::ModelSpec ModelOf(const RunConfig& config, const PolicyId& id) {
  v1::ModelConfig model = config.proto().model();
  if (const v1::PolicyConfig* policy = FindConfig(config, id)) {
    // MergeFrom appends to lists; an override replaces them.
    if (policy->model().actor_hidden_sizes_size() > 0) model.clear_actor_hidden_sizes();
    if (policy->model().critic_hidden_sizes_size() > 0) model.clear_critic_hidden_sizes();
    model.MergeFrom(policy->model());
  }
  return ToModel(model);
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

bool HasContinuousActions(const space::Space& actions) {
  for (const space::ActionLeaf& leaf : space::ActionLeaves(actions)) {
    if (leaf.kind == space::ActionLeaf::Kind::kContinuous) return true;
  }
  return false;
}

/// Elements of the joint observation: every agent's, then a presence bit each.
int64_t JointObservationSize(const env::EnvSpec& env) {
  int64_t size = env.num_agents();
  for (const env::AgentSpec& agent : env.possible_agents) size += agent.observation_space.flat_size();
  return size;
}

/// Spaces, mask and one-hot from the agents that play the policy.
absl::Status InferFromAgents(const RunConfig& config, const env::EnvSpec& env,
                             const std::vector<std::vector<MappedPolicy>>& policies_of_agent, PolicySlot slot,
                             PolicySpec* spec) {
  const env::AgentSpec* first = nullptr;
  int agents = 0;
  for (size_t i = 0; i < policies_of_agent.size(); ++i) {
    const bool plays = std::any_of(policies_of_agent[i].begin(), policies_of_agent[i].end(),
                                   [slot](const MappedPolicy& mapped) { return mapped.policy == slot; });
    if (!plays) continue;
    const env::AgentSpec& agent = env.possible_agents[i];
    ++agents;
    if (first == nullptr) {
      first = &agent;
      continue;
    }
    const auto differ = [&](const char* what, const std::string& one, const std::string& other) {
      return KeyError(config, "multi_agent.policy_mapping",
                      absl::StrCat("agents \"", first->id.value(), "\" and \"", agent.id.value(), "\" of policy \"",
                                   spec->id.value(), "\" have different ", what, ": ", one, " and ", other,
                                   "; give them policies of their own"));
    };
    if (agent.observation_space != first->observation_space) {
      return differ("observation spaces", first->observation_space.ToString(), agent.observation_space.ToString());
    }
    if (agent.action_space != first->action_space) {
      return differ("action spaces", first->action_space.ToString(), agent.action_space.ToString());
    }
    if (agent.has_action_mask != first->has_action_mask) return differ("action masks", "one", "none");
  }
  TROUPE_CHECK(first != nullptr);  // MapAgents refused a policy that plays nobody
  if (!HasServableActions(first->action_space)) {
    return KeyError(
        config, "algorithm.name",
        absl::StrCat(EnumWord(*v1::AlgorithmName_descriptor()->FindValueByNumber(config.proto().algorithm().name())),
                     " cannot serve the action space ", first->action_space.ToString(), " of agent \"",
                     first->id.value(),
                     "\", expected Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a Dict or Tuple of them"));
  }
  const v1::AlgorithmConfig& algorithm = config.proto().algorithm();
  if (algorithm.use_actions_mask()) {
    if (HasContinuousActions(first->action_space)) {
      return KeyError(config, "algorithm.use_actions_mask",
                      absl::StrCat("got true, but agent \"", first->id.value(), "\" has a continuous action, ",
                                   first->action_space.ToString(), ", expected discrete ones only"));
    }
    if (!first->has_action_mask) {
      return KeyError(config, "algorithm.use_actions_mask",
                      absl::StrCat("got true, but ", env.name, " gives agent \"", first->id.value(), "\" no mask"));
    }
  }
  spec->observation_space = first->observation_space;
  spec->action_space = first->action_space;
  const bool wants_mask = !algorithm.has_use_actions_mask() || algorithm.use_actions_mask();
  spec->has_action_mask = first->has_action_mask && wants_mask;
  spec->agent_id_size = algorithm.use_agent_id() && agents > 1 ? env.num_agents() : 0;
  spec->critic_agent_id = algorithm.critic_agent_id() && spec->agent_id_size > 0;
  return absl::OkStatus();
}

absl::Status SetCriticInput(const RunConfig& config, const env::EnvSpec& env, PolicySpec* spec) {
  const v1::AlgorithmConfig& algorithm = config.proto().algorithm();
  const bool centralized = algorithm.name() == v1::ALGORITHM_NAME_MAPPO;
  if (algorithm.use_global_state()) {
    if (!centralized) {
      return KeyError(config, "algorithm.use_global_state",
                      "got true, but only mappo has a centralized critic; expected algorithm.name: mappo");
    }
    if (env.state_kind == env::StateKind::kNone) {
      return KeyError(config, "algorithm.use_global_state",
                      absl::StrCat("got true, but ", env.name,
                                   " has no global state; expected false (the critic sees all observations)"));
    }
    spec->critic_input = policy::CriticInput::kGlobalState;
    spec->critic_state_size = env.state_space.flat_size();
  } else if (centralized) {
    spec->critic_input = policy::CriticInput::kJointObservation;
    spec->critic_state_size = JointObservationSize(env);
  }
  return absl::OkStatus();
}

/// What networks need: inputs, normalizer, action bounding.
absl::Status FillNetworks(const RunConfig& config, const env::EnvSpec& env, PolicySpec* spec) {
  TROUPE_RETURN_IF_ERROR(SetCriticInput(config, env, spec));
  spec->normalize_observations = config.proto().algorithm().normalize_observations();
  spec->action_bound_method = static_cast<policy::ActionBoundMethod>(config.proto().action_bound_method());
  spec->action_scaling = config.proto().action_scaling();
  if (const absl::Status status = spec->Validate(); !status.ok()) {
    const std::string key = spec->action_scaling ? "action_scaling" : "action_bound_method";
    return KeyError(config, key, std::string(status.message()));
  }
  return absl::OkStatus();
}

/// A policy without networks gets nothing of theirs, and its actions are the environment's own.
absl::Status FillWithoutNetworks(const RunConfig& config, PolicySpec* spec) {
  const std::string key = JoinKey("multi_agent.policies", spec->id.value());
  if (FindConfig(config, spec->id)->has_model()) {
    return KeyError(
        config, JoinKey(key, "model"),
        absl::StrCat("got overrides, but class ", base::LogSafe(spec->policy_class.ToString()), " has no networks"));
  }
  spec->model = {};
  spec->agent_id_size = 0;
  spec->critic_agent_id = false;
  spec->action_bound_method = policy::ActionBoundMethod::kNone;
  if (const auto actor = inference::ScriptedActor::Create(*spec, 0); !actor.ok()) {
    return KeyError(config, JoinKey(key, "class"), std::string(actor.status().message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResolvedPolicies> ResolvePolicies(const RunConfig& config, const env::EnvSpec& env) {
  TROUPE_ASSIGN_OR_RETURN(Names names, ResolveNames(config, env));
  ResolvedPolicies resolved;
  TROUPE_ASSIGN_OR_RETURN(resolved.policies_of_agent, MapAgents(config, env, names));
  TROUPE_ASSIGN_OR_RETURN(resolved.trains, ResolveTrains(config, names));
  resolved.rules = std::move(names.rules);
  for (size_t i = 0; i < names.policies.size(); ++i) {
    PolicySpec spec;
    spec.id = names.policies[i];
    TROUPE_ASSIGN_OR_RETURN(spec.policy_class, ClassOf(config, spec.id));
    spec.model = ModelOf(config, spec.id);
    TROUPE_RETURN_IF_ERROR(
        InferFromAgents(config, env, resolved.policies_of_agent, PolicySlot(static_cast<int32_t>(i)), &spec));
    TROUPE_RETURN_IF_ERROR(spec.policy_class.has_weights() ? FillNetworks(config, env, &spec)
                                                           : FillWithoutNetworks(config, &spec));
    resolved.specs.push_back(std::move(spec));
  }
  return resolved;
}

}  // namespace troupe::config
