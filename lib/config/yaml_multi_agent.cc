// YamlLoader's half for multi_agent: policies, agents, mapping and who trains.

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/overrides.h"
#include "lib/config/yaml_loader.h"
#include "lib/config/yaml_scalars.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_class.h"
#include "lib/policy/python_callable.h"
#include "lib/space/space.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

constexpr size_t kMaxGlobLength = 256;

/// The entry of `entries` that is called `name`; nullptr: none.
template <typename Entries, typename NameOf>
auto* FindEntry(Entries* entries, const std::string& name, NameOf name_of) {
  const auto found =
      std::find_if(entries->begin(), entries->end(), [&](const auto& entry) { return name_of(entry) == name; });
  return found == entries->end() ? nullptr : &*found;
}

}  // namespace

absl::StatusOr<std::string> YamlLoader::NewPolicyId(const YAML::Node& node, const std::string& key, Seen* seen) {
  TROUPE_ASSIGN_OR_RETURN(std::string id, EntryName(node, key, seen));
  if (const absl::Status status = policy::ValidatePolicyId(id); !status.ok()) {
    return Error(node, absl::StrCat(key, ": ", std::string(status.message())));
  }
  return id;
}

absl::StatusOr<std::string> YamlLoader::NewGlob(const YAML::Node& node, const std::string& key, Seen* seen) {
  TROUPE_ASSIGN_OR_RETURN(std::string glob, EntryName(node, key, seen));
  if (glob.size() > kMaxGlobLength) {
    return Error(node, absl::StrCat(key, ": got ", glob.size(), " characters, expected a name or glob of at most ",
                                    kMaxGlobLength));
  }
  return glob;
}

absl::Status YamlLoader::LoadPolicies(const YAML::Node& node, const std::string& key, const Field& field,
                                      Message* message) {
  auto* const policies = static_cast<v1::MultiAgentConfig*>(message)->mutable_policies();
  if (node.IsNull()) return absl::OkStatus();
  if (!node.IsSequence() && !node.IsMap()) return WrongValue(node, key, field);
  if (node.size() > static_cast<size_t>(RuleOf(field).max_items())) {
    return Error(node,
                 absl::StrCat(key, ": got ", node.size(), " policies, expected at most ", RuleOf(field).max_items()));
  }
  Seen seen;
  if (node.IsSequence()) {
    policies->Clear();
    for (const YAML::Node& item : node) {
      TROUPE_ASSIGN_OR_RETURN(const std::string id, NewPolicyId(item, key, &seen));
      policies->Add()->set_id(id);
    }
    return absl::OkStatus();
  }
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string id, NewPolicyId(entry.first, key, &seen));
    const std::string policy_key = JoinKey(key, id);
    places_[policy_key] = Place(entry.first);
    v1::PolicyConfig* policy = FindEntry(policies, id, [](const v1::PolicyConfig& known) { return known.id(); });
    if (policy == nullptr) {
      policy = policies->Add();
      policy->set_id(id);
    }
    if (entry.second.IsNull()) continue;
    if (!entry.second.IsMap()) {
      return Error(entry.second, absl::StrCat(policy_key, ": got ", Describe(entry.second),
                                              ", expected a mapping ({class: ..., model: ..., algorithm: ...})"));
    }
    TROUPE_RETURN_IF_ERROR(LoadPolicy(entry.second, policy_key, policy));
  }
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadPolicy(const YAML::Node& node, const std::string& key, v1::PolicyConfig* policy) {
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string name, EntryName(entry.first, key, &seen));
    const std::string part = JoinKey(key, name);
    if (name == "class") {
      TROUPE_RETURN_IF_ERROR(LoadPolicyClass(entry.second, part, policy));
    } else if (name == "load") {
      const bool is_path =
          entry.second.IsScalar() && policy::ParsePolicyClass("checkpoint:" + entry.second.Scalar()).ok();
      if (!is_path) {
        return Error(entry.second, absl::StrCat(part, ": got ", Describe(entry.second),
                                                ", expected PATH or PATH#ID of a run or checkpoint"));
      }
      places_[part] = Place(entry.second);
      policy->set_load(entry.second.Scalar());
    } else if (name == "model") {
      TROUPE_RETURN_IF_ERROR(LoadModelOverrides(entry.second, part, policy->mutable_model()));
    } else if (name == "algorithm") {
      TROUPE_RETURN_IF_ERROR(LoadAlgorithmOverrides(entry.second, part, policy->mutable_algorithm()));
    } else if (name == "observation_space") {
      TROUPE_ASSIGN_OR_RETURN(*policy->mutable_observation_space(), LoadSpace(entry.second, part));
    } else if (name == "action_space") {
      TROUPE_ASSIGN_OR_RETURN(*policy->mutable_action_space(), LoadSpace(entry.second, part));
    } else {
      return Error(
          entry.first,
          absl::StrCat("unknown key \"", base::LogSafe(part, 160),
                       "\"; a policy may have class, load, observation_space, action_space, model and algorithm"));
    }
  }
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadAgents(const YAML::Node& node, const std::string& key, const Field& field,
                                    Message* message) {
  auto* const agents = static_cast<v1::MultiAgentConfig*>(message)->mutable_agents();
  if (node.IsNull()) return absl::OkStatus();
  if (!node.IsMap()) return WrongValue(node, key, field);
  if (node.size() > static_cast<size_t>(RuleOf(field).max_items())) {
    return Error(node,
                 absl::StrCat(key, ": got ", node.size(), " entries, expected at most ", RuleOf(field).max_items()));
  }
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string glob, NewGlob(entry.first, key, &seen));
    const std::string agent_key = base::LogSafe(JoinKey(key, glob), 160);
    places_[JoinKey(key, glob)] = Place(entry.first);
    v1::AgentConfig* agent = FindEntry(agents, glob, [](const v1::AgentConfig& known) { return known.agents(); });
    if (agent == nullptr) {
      agent = agents->Add();
      agent->set_agents(glob);
    }
    if (entry.second.IsNull()) continue;
    if (!entry.second.IsMap()) {
      return Error(entry.second, absl::StrCat(agent_key, ": got ", Describe(entry.second),
                                              ", expected a mapping ({model: ..., algorithm: ...})"));
    }
    Seen parts;
    for (const auto& part : entry.second) {
      TROUPE_ASSIGN_OR_RETURN(const std::string name, EntryName(part.first, agent_key, &parts));
      const std::string part_key = JoinKey(JoinKey(key, glob), name);
      if (name == "model") {
        TROUPE_RETURN_IF_ERROR(LoadModelOverrides(part.second, part_key, agent->mutable_model()));
      } else if (name == "algorithm") {
        TROUPE_RETURN_IF_ERROR(LoadAlgorithmOverrides(part.second, part_key, agent->mutable_algorithm()));
      } else {
        return Error(part.first, absl::StrCat("unknown key \"", base::LogSafe(part_key, 160),
                                              "\"; an agent may have model and algorithm only"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadAlgorithmOverrides(const YAML::Node& node, const std::string& key,
                                                v1::AlgorithmConfig* algorithm) {
  if (node.IsMap()) {
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) continue;  // LoadSection says what is wrong
      const std::string& name = entry.first.Scalar();
      const std::vector<const Field*> fields = FieldsOf(*v1::AlgorithmConfig::descriptor(), name);
      if (fields.empty()) continue;
      if (IsImmutable(name)) {
        return Error(entry.first, absl::StrCat(base::LogSafe(JoinKey(key, name), 160),
                                               ": is one for the whole run, expected it in algorithm.", name,
                                               " alone; immutable are ", absl::StrJoin(ImmutableKeys(), ", ")));
      }
      // One word in all algorithms that have the key.
      TROUPE_RETURN_IF_ERROR(CheckOverrides(entry.second, JoinKey(key, name), *fields[0]));
    }
  }
  return LoadSection(node, key, algorithm);
}

absl::Status YamlLoader::LoadModelOverrides(const YAML::Node& node, const std::string& key, v1::ModelConfig* model) {
  if (node.IsMap()) {
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) continue;  // LoadSection says what is wrong
      const std::string& name = entry.first.Scalar();
      const std::vector<const Field*> fields = FieldsOf(*v1::ModelConfig::descriptor(), name);
      if (!fields.empty()) TROUPE_RETURN_IF_ERROR(CheckOverrides(entry.second, JoinKey(key, name), *fields[0]));
    }
  }
  return LoadSection(node, key, model);
}

absl::Status YamlLoader::CheckOverrides(const YAML::Node& value, const std::string& key, const Field& field) const {
  if (!IsUnsetWord(value, RuleOf(field))) return absl::OkStatus();
  return Error(value, absl::StrCat(base::LogSafe(key, 160), ": got ", Describe(value),
                                   ", expected a value: an override cannot take one back"));
}

absl::StatusOr<std::string> YamlLoader::LoadSpace(const YAML::Node& node, const std::string& key) {
  if (!node.IsScalar()) {
    return Error(node, absl::StrCat(key, ": got ", Describe(node),
                                    ", expected a space as text (\"Box(-1, 1, [4])\", \"Discrete(3)\")"));
  }
  const absl::StatusOr<space::Space> space = space::ParseSpace(node.Scalar());
  if (!space.ok()) return Error(node, absl::StrCat(key, ": ", std::string(space.status().message())));
  places_[key] = Place(node);
  return space->ToString();
}

absl::Status YamlLoader::LoadPolicyClass(const YAML::Node& node, const std::string& key, v1::PolicyConfig* policy) {
  if (!node.IsScalar()) {
    return Error(node, absl::StrCat(key, ": got ", Describe(node), ", expected the name of a policy class"));
  }
  const absl::StatusOr<policy::PolicyClass> parsed = policy::ParsePolicyClass(node.Scalar());
  if (!parsed.ok()) return Error(node, absl::StrCat(key, ": ", std::string(parsed.status().message())));
  places_[key] = Place(node);
  // One text for one meaning: the default is not written.
  policy->set_class_(parsed->kind == policy::PolicyClass::Kind::kTrained ? "" : parsed->ToString());
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadMappedPolicies(const YAML::Node& node, const std::string& key,
                                            v1::PolicyMappingRule* rule) {
  const std::string where = base::LogSafe(key, 128);
  Seen seen;
  if (node.IsScalar()) {
    TROUPE_ASSIGN_OR_RETURN(const std::string id, NewPolicyId(node, where, &seen));
    v1::WeightedPolicy* policy = rule->add_policies();
    policy->set_policy(id);
    policy->set_weight(1);
    return absl::OkStatus();
  }
  if (!node.IsMap() || node.size() == 0) {
    return Error(node,
                 absl::StrCat(where, ": got ", node.IsMap() ? "an empty mapping" : Describe(node),
                              ", expected a policy id, a mapping from policy ids to weights, or {function: NAME}"));
  }
  // A policy may be called function, too; then it has a weight.
  if (const YAML::Node function = node["function"]; function.IsDefined() && !ParseDouble(function)) {
    return LoadMappingFunction(node, key, rule);
  }
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string id, NewPolicyId(entry.first, where, &seen));
    const std::optional<double> weight = ParseDouble(entry.second);
    if (!weight || !(*weight > 0)) {
      return Error(entry.second, absl::StrCat(JoinKey(where, id), ": got ", Describe(entry.second),
                                              ", expected a weight, a number above 0"));
    }
    v1::WeightedPolicy* policy = rule->add_policies();
    policy->set_policy(id);
    policy->set_weight(*weight);
  }
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadMappingFunction(const YAML::Node& node, const std::string& key,
                                             v1::PolicyMappingRule* rule) {
  const std::string where = base::LogSafe(key, 128);
  Seen seen;
  for (const auto& entry : node) {
    const absl::StatusOr<std::string> name = EntryName(entry.first, where, &seen);
    TROUPE_RETURN_IF_ERROR(name.status());
    if (*name == "function") {
      TROUPE_ASSIGN_OR_RETURN(*rule->mutable_function(), LoadFunctionName(entry.second, JoinKey(key, *name)));
    } else if (*name == "policies") {
      TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                              LoadNames(entry.second, JoinKey(where, *name), "policy ids", &YamlLoader::NewPolicyId));
      for (const std::string& id : ids) {
        v1::WeightedPolicy* policy = rule->add_policies();
        policy->set_policy(id);
        policy->set_weight(1);
      }
    } else {
      return Error(entry.first, absl::StrCat("unknown key \"", base::LogSafe(JoinKey(key, *name), 160),
                                             "\"; beside a function there may be policies only"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> YamlLoader::LoadFunctionName(const YAML::Node& node, const std::string& key) {
  const std::string where = base::LogSafe(key, 128);
  if (!node.IsScalar() || node.Scalar().empty() || node.Scalar().size() > policy::kMaxPythonNameLength) {
    return Error(node, absl::StrCat(where, ": got ", Describe(node), ", expected the name of a function, at most ",
                                    policy::kMaxPythonNameLength, " characters"));
  }
  places_[key] = Place(node);
  return node.Scalar();
}

absl::StatusOr<std::vector<std::string>> YamlLoader::LoadNames(const YAML::Node& node, const std::string& key,
                                                               const char* what, NameReader read) {
  if (!node.IsSequence() || node.size() == 0 || node.size() > kMaxNames) {
    return Error(
        node, absl::StrCat(key, ": got ", node.IsSequence() ? absl::StrCat("a list of ", node.size()) : Describe(node),
                           ", expected a list of 1 to ", kMaxNames, " ", what));
  }
  std::vector<std::string> names;
  Seen seen;
  for (const YAML::Node& item : node) {
    TROUPE_ASSIGN_OR_RETURN(names.emplace_back(), (this->*read)(item, key, &seen));
  }
  return names;
}

absl::Status YamlLoader::LoadPolicyMapping(const YAML::Node& node, const std::string& key, const Field& field,
                                           Message* message) {
  v1::PolicyMapping mapping;
  if (IsPlain(node) && node.Scalar() == "per_agent") {
    mapping.set_per_agent(true);
  } else if (node.IsMap()) {
    // {function: NAME} alone is for all agents; an agent of that name would be mapped by "functio?".
    const bool whole =
        node["function"].IsDefined() && (node.size() == 1 || (node.size() == 2 && node["policies"].IsDefined()));
    if (whole) {
      places_[JoinKey(key, "*")] = Place(node);
      v1::PolicyMappingRule* rule = mapping.add_rules();
      rule->set_agents("*");
      TROUPE_RETURN_IF_ERROR(LoadMappingFunction(node, JoinKey(key, "*"), rule));
    } else {
      Seen seen;
      for (const auto& entry : node) {
        TROUPE_ASSIGN_OR_RETURN(const std::string glob, EntryName(entry.first, key, &seen));
        // `lambda agent: agent` is a mapping to YAML.
        if (absl::StartsWith(glob, "lambda ")) return WrongValue(entry.first, key, field);
        places_[JoinKey(key, glob)] = Place(entry.second);
        v1::PolicyMappingRule* rule = mapping.add_rules();
        rule->set_agents(glob);
        TROUPE_RETURN_IF_ERROR(LoadMappedPolicies(entry.second, JoinKey(key, glob), rule));
      }
    }
  } else if (!node.IsNull()) {
    return WrongValue(node, key, field);
  }
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(mapping);
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadPoliciesToTrain(const YAML::Node& node, const std::string& key, const Field& field,
                                             Message* message) {
  v1::PoliciesToTrain trains;
  if (node.IsMap()) {
    TROUPE_RETURN_IF_ERROR(LoadTrainRule(node, key, trains.add_rules()));
  } else if (node.IsScalar() && policy::IsPythonName(node.Scalar())) {
    TROUPE_ASSIGN_OR_RETURN(*trains.add_rules()->mutable_function(), LoadFunctionName(node, key));
  } else if (!node.IsSequence()) {
    return WrongValue(node, key, field);
  } else if (node.size() > static_cast<size_t>(RuleOf(field).max_items())) {
    return Error(node,
                 absl::StrCat(key, ": got ", node.size(), " entries, expected at most ", RuleOf(field).max_items()));
  } else {
    Seen seen;
    for (const YAML::Node& item : node) {
      if (item.IsMap()) {
        TROUPE_RETURN_IF_ERROR(LoadTrainRule(item, key, trains.add_rules()));
        continue;
      }
      TROUPE_ASSIGN_OR_RETURN(const std::string id, NewPolicyId(item, key, &seen));
      trains.add_ids(id);
    }
  }
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(trains);
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadTrainRule(const YAML::Node& node, const std::string& key, v1::TrainRule* rule) {
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string name, EntryName(entry.first, key, &seen));
    const std::string part = JoinKey(key, name);
    if (name == "policies" || name == "only_against") {
      TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                              LoadNames(entry.second, part, "policy ids or globs over them", &YamlLoader::NewGlob));
      *(name == "policies" ? rule->mutable_policies() : rule->mutable_only_against()) = {names.begin(), names.end()};
      places_[part] = Place(entry.second);
    } else if (name == "only_newest") {
      const std::optional<int64_t> count = ParseInteger(entry.second);
      if (!count || *count < 1) {
        return Error(entry.second, absl::StrCat(part, ": got ", Describe(entry.second), ", expected an integer >= 1"));
      }
      rule->set_only_newest(*count);
    } else if (name == "function") {
      TROUPE_ASSIGN_OR_RETURN(*rule->mutable_function(), LoadFunctionName(entry.second, part));
    } else {
      return Error(entry.first, absl::StrCat("unknown key \"", base::LogSafe(part, 160),
                                             "\"; expected policies, only_against, only_newest or function"));
    }
  }
  return absl::OkStatus();
}

}  // namespace troupe::config
