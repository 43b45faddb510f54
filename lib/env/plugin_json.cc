#include "lib/env/plugin_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include <nlohmann/json.hpp>

namespace troupe::env {
namespace {

using Json = nlohmann::ordered_json;  // arguments keep their order

constexpr const char* kStateNames[] = {"none", "per_env", "per_agent"};

/// What stands there instead of what was expected.
std::string Got(const Json& value) {
  // Not what is inside: dumping goes as deep as that is nested.
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return base::LogSafe(value.dump(-1, ' ', true, Json::error_handler_t::replace), 64);
}

absl::StatusOr<Json> ParseObject(std::string_view text, const char* what) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": not valid JSON, expected an object, got '", base::LogSafe(text, 64), "'"));
  }
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(what, ": expected an object, got ", Got(json)));
  return json;
}

/// Reads the members of one JSON object, each with its type. Not thread-safe.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const Json* Find(const char* key) {
    known_.emplace_back(key);
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }

  absl::StatusOr<std::string> Text(const char* key, const char* fallback) {
    const Json* value = Find(key);
    if (value == nullptr && fallback != nullptr) return std::string(fallback);
    if (value == nullptr) return Error(key, "is missing, expected a text");
    if (!value->is_string()) return Error(key, absl::StrCat("is ", Got(*value), ", expected a text"));
    return value->get<std::string>();
  }

  absl::StatusOr<bool> Bool(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return Error(key, absl::StrCat("is ", Got(*value), ", expected true or false"));
    return value->get<bool>();
  }

  absl::StatusOr<int64_t> Count(const char* key) {
    const Json* value = Find(key);
    if (value == nullptr) return 0;
    if (!value->is_number_integer()) return Error(key, absl::StrCat("is ", Got(*value), ", expected an integer"));
    if (value->is_number_unsigned() && value->get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
      return Error(key, absl::StrCat("is ", Got(*value), ", expected at most ", std::numeric_limits<int64_t>::max()));
    }
    return value->get<int64_t>();
  }

  absl::StatusOr<space::Space> ASpace(const char* key, const char* fallback) {
    TROUPE_ASSIGN_OR_RETURN(const std::string text, Text(key, fallback));
    if (text.empty()) return space::Space();
    absl::StatusOr<space::Space> parsed = space::ParseSpace(text);
    if (!parsed.ok())
      return Error(key, absl::StrCat("is '", base::LogSafe(text, 64), "': ", parsed.status().message()));
    return parsed;
  }

  absl::Status CheckAllKnown() const {
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string nearest = base::NearestName(key, known_);
      return Error(base::LogSafe(key, 64),
                   absl::StrCat("is unknown, ", nearest.empty() ? absl::StrCat("expected ", absl::StrJoin(known_, ", "))
                                                                : absl::StrCat("did you mean '", nearest, "'?")));
    }
    return absl::OkStatus();
  }

  absl::Status Error(const std::string& key, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(where_, key, " ", what));
  }

 private:
  const Json& json_;
  const std::string where_;
  std::vector<std::string> known_;
};

absl::StatusOr<AgentSpec> ParseAgent(const Json& json, size_t place) {
  const std::string where = absl::StrCat("spec: agents[", place, "]");
  if (!json.is_object())
    return absl::InvalidArgumentError(absl::StrCat(where, " is ", Got(json), ", expected an object"));
  Reader reader(json, absl::StrCat(where, "."));
  AgentSpec agent;
  TROUPE_ASSIGN_OR_RETURN(std::string id, reader.Text("id", nullptr));
  agent.id = AgentId(std::move(id));
  TROUPE_ASSIGN_OR_RETURN(agent.observation_space, reader.ASpace("observation_space", nullptr));
  TROUPE_ASSIGN_OR_RETURN(agent.action_space, reader.ASpace("action_space", nullptr));
  TROUPE_ASSIGN_OR_RETURN(agent.has_action_mask, reader.Bool("action_mask"));
  TROUPE_RETURN_IF_ERROR(reader.CheckAllKnown());
  return agent;
}

constexpr int kMaxArgDepth = 16;

absl::StatusOr<ArgValue> ParseArg(const std::string& name, const Json& json, int depth) {
  if (json.is_structured() && depth >= kMaxArgDepth) {
    return absl::InvalidArgumentError(absl::StrCat("argument ", base::LogSafe(name, 64), " is nested deeper than ",
                                                   kMaxArgDepth, " lists or mappings"));
  }
  if (json.is_null()) return ArgValue();
  if (json.is_boolean()) return ArgValue(json.get<bool>());
  if (json.is_string()) return ArgValue(json.get<std::string>());
  if (json.is_array()) {
    ArgList list;
    for (const Json& item : json) {
      TROUPE_ASSIGN_OR_RETURN(ArgValue value, ParseArg(name, item, depth + 1));
      list.push_back(std::move(value));
    }
    return ArgValue(std::move(list));
  }
  if (json.is_object()) {
    ArgMap map;
    for (const auto& [key, item] : json.items()) {
      TROUPE_ASSIGN_OR_RETURN(ArgValue value, ParseArg(name, item, depth + 1));
      map.emplace_back(key, std::move(value));
    }
    return ArgValue(std::move(map));
  }
  const bool too_large =
      json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (json.is_number_integer() && !too_large) return ArgValue(json.get<int64_t>());
  return ArgValue(json.get<double>());
}

}  // namespace

absl::StatusOr<EnvSpec> ParsePluginSpec(std::string_view name, std::string_view json) {
  TROUPE_ASSIGN_OR_RETURN(const Json object, ParseObject(json, "spec"));
  Reader reader(object, "spec: ");
  EnvSpec spec;
  spec.name = std::string(name);
  const Json* const agents = reader.Find("agents");
  if (agents == nullptr || !agents->is_array()) {
    return reader.Error("agents", absl::StrCat(agents == nullptr ? "is missing" : absl::StrCat("is ", Got(*agents)),
                                               ", expected a list of {id, observation_space, action_space}"));
  }
  for (const Json& agent : *agents) {
    TROUPE_ASSIGN_OR_RETURN(AgentSpec parsed, ParseAgent(agent, spec.possible_agents.size()));
    spec.possible_agents.push_back(std::move(parsed));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::string state, reader.Text("state", kStateNames[0]));
  const auto* const kind = std::find(std::begin(kStateNames), std::end(kStateNames), state);
  if (kind == std::end(kStateNames)) {
    return reader.Error("state",
                        absl::StrCat("is '", base::LogSafe(state, 64), "', expected none, per_env or per_agent"));
  }
  spec.state_kind = static_cast<StateKind>(kind - std::begin(kStateNames));
  TROUPE_ASSIGN_OR_RETURN(spec.state_space, reader.ASpace("state_space", ""));
  TROUPE_ASSIGN_OR_RETURN(spec.has_agent_mask, reader.Bool("agent_mask"));
  TROUPE_ASSIGN_OR_RETURN(spec.max_episode_steps, reader.Count("max_episode_steps"));
  if (const Json* const columns = reader.Find("info_columns"); columns != nullptr) {
    if (!columns->is_array()) {
      return reader.Error("info_columns", absl::StrCat("is ", Got(*columns), ", expected a list of names"));
    }
    for (const Json& column : *columns) {
      if (!column.is_string()) {
        return reader.Error("info_columns", absl::StrCat("holds ", Got(column), ", expected a list of names"));
      }
      spec.info_columns.push_back(column.get<std::string>());
    }
  }
  TROUPE_RETURN_IF_ERROR(reader.CheckAllKnown());
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  return spec;
}

std::string PluginSpecJson(const EnvSpec& spec) {
  nlohmann::ordered_json json;
  json["agents"] = nlohmann::ordered_json::array();
  for (const AgentSpec& agent : spec.possible_agents) {
    json["agents"].push_back({{"id", agent.id.value()},
                              {"observation_space", agent.observation_space.ToString()},
                              {"action_space", agent.action_space.ToString()},
                              {"action_mask", agent.has_action_mask}});
  }
  json["state"] = kStateNames[static_cast<size_t>(spec.state_kind)];
  if (spec.state_space.has_value()) json["state_space"] = spec.state_space.ToString();
  json["agent_mask"] = spec.has_agent_mask;
  json["info_columns"] = spec.info_columns;
  json["max_episode_steps"] = spec.max_episode_steps;
  return json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
}

absl::StatusOr<EnvArgs> ParseEnvArgsJson(std::string_view json) {
  if (json.empty()) return EnvArgs();
  TROUPE_ASSIGN_OR_RETURN(const Json object, ParseObject(json, "arguments"));
  ArgMap values;
  for (const auto& [name, value] : object.items()) {
    TROUPE_ASSIGN_OR_RETURN(ArgValue parsed, ParseArg(name, value, 0));
    values.emplace_back(name, std::move(parsed));
  }
  return EnvArgs(std::move(values));
}

}  // namespace troupe::env
