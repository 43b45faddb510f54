// YamlLoader's half for env: groups of agents and ranges of rewards.

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/yaml_loader.h"
#include "lib/config/yaml_scalars.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {

absl::Status YamlLoader::LoadGroups(const YAML::Node& node, const std::string& key, const Field& field,
                                    Message* message) {
  auto* const groups = static_cast<v1::EnvConfig*>(message)->mutable_groups();
  if (node.IsNull()) return absl::OkStatus();
  if (!node.IsMap()) return WrongValue(node, key, field);
  if (node.size() > static_cast<size_t>(RuleOf(field).max_items())) {
    return Error(node,
                 absl::StrCat(key, ": got ", node.size(), " groups, expected at most ", RuleOf(field).max_items()));
  }
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string name, EntryName(entry.first, key, &seen));
    places_[JoinKey(key, name)] = Place(entry.second);
    v1::AgentGroup group;
    group.set_name(name);
    TROUPE_RETURN_IF_ERROR(LoadGroup(entry.second, JoinKey(key, name), &group));
    const auto known = std::find_if(groups->begin(), groups->end(),
                                    [&name](const v1::AgentGroup& other) { return other.name() == name; });
    (known == groups->end() ? *groups->Add() : *known) = group;
  }
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadGroup(const YAML::Node& node, const std::string& key, v1::AgentGroup* group) {
  const std::string where = base::LogSafe(key, 128);
  const auto load_agents = [&](const YAML::Node& agents) -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            LoadNames(agents, where, "agent ids", &YamlLoader::NewGlob));
    *group->mutable_agents() = {names.begin(), names.end()};
    return absl::OkStatus();
  };
  if (!node.IsMap()) return load_agents(node);
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string name, EntryName(entry.first, where, &seen));
    if (name == "agents") {
      TROUPE_RETURN_IF_ERROR(load_agents(entry.second));
    } else if (name == "obs_space") {
      TROUPE_ASSIGN_OR_RETURN(*group->mutable_obs_space(), LoadSpace(entry.second, JoinKey(key, name)));
    } else if (name == "act_space") {
      TROUPE_ASSIGN_OR_RETURN(*group->mutable_act_space(), LoadSpace(entry.second, JoinKey(key, name)));
    } else {
      return Error(entry.first, absl::StrCat("unknown key \"", base::LogSafe(JoinKey(key, name), 160),
                                             "\"; a group may have agents, obs_space and act_space"));
    }
  }
  if (group->agents().empty()) return Error(node, absl::StrCat(where, ".agents is missing, expected a list"));
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadRange(const YAML::Node& node, const std::string& key, const Field& field,
                                   Message* message) {
  std::optional<double> low;
  std::optional<double> high;
  if (node.IsSequence() && node.size() == 2) {
    low = ParseDouble(node[0]);
    high = ParseDouble(node[1]);
  } else if (node.IsScalar()) {
    high = ParseDouble(node);
    if (high) low = -*high;
  }
  const v1::KeyRule& rule = RuleOf(field);
  if (!low || !high || !InRange(rule, *low) || !InRange(rule, *high) || !(*low <= 0 && *high >= 0 && *low < *high)) {
    return WrongValue(node, key, field);
  }
  v1::RewardClip range;
  range.set_low(*low);
  range.set_high(*high);
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(range);
  return absl::OkStatus();
}

}  // namespace troupe::config
