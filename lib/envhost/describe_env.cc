#include "lib/envhost/describe_env.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::envhost {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr size_t kMaxWords = 300;

absl::Status Wrong(const std::string& what, const Json& got, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", base::LogSafe(got.dump(-1, ' ', true, Json::error_handler_t::replace), 64),
                   ", expected ", expected));
}

/// The member, or null.
const Json& Member(const Json& json, const char* key) {
  static const Json kNull;
  const auto found = json.find(key);
  return found == json.end() ? kNull : *found;
}

absl::StatusOr<std::vector<int64_t>> Integers(const Json& json, const char* what) {
  std::vector<int64_t> values;
  if (!json.is_array()) return Wrong(what, json, "a list of integers");
  for (const Json& value : json) {
    if (!value.is_number_integer()) return Wrong(what, value, "an integer");
    values.push_back(value.get<int64_t>());
  }
  return values;
}

absl::StatusOr<double> Bound(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  return Wrong("a bound of a Box", json, "a number, \"inf\" or \"-inf\"");
}

absl::StatusOr<std::vector<double>> Bounds(const Json& json, size_t elements) {
  std::vector<double> bounds;
  if (!json.is_array()) {
    TROUPE_ASSIGN_OR_RETURN(const double bound, Bound(json));
    return std::vector<double>(elements, bound);
  }
  bounds.reserve(json.size());
  for (const Json& value : json) {
    TROUPE_ASSIGN_OR_RETURN(const double bound, Bound(value));
    bounds.push_back(bound);
  }
  return bounds;
}

absl::StatusOr<space::Space> ReadBox(const Json& json) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<int64_t> shape, Integers(Member(json, "shape"), "the shape of a Box"));
  // The real check of the shape is Space::Box's; this one keeps a wrong shape from asking for memory.
  size_t elements = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 1 || dimension > space::Space::kMaxElements ||
        elements * static_cast<size_t>(dimension) > static_cast<size_t>(space::Space::kMaxElements)) {
      return Wrong("the shape of a Box", Member(json, "shape"), "positive dimensions and at most 16777216 elements");
    }
    elements *= static_cast<size_t>(dimension);
  }
  const Json& name = Member(json, "dtype");
  using tensor::DType;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64, DType::kUint8}) {
    if (name != std::string(tensor::DTypeName(dtype))) continue;
    TROUPE_ASSIGN_OR_RETURN(std::vector<double> low, Bounds(Member(json, "low"), elements));
    TROUPE_ASSIGN_OR_RETURN(std::vector<double> high, Bounds(Member(json, "high"), elements));
    return space::Space::Box(std::move(low), std::move(high), std::move(shape), dtype);
  }
  return Wrong("the dtype of a Box", name, "float32, float64, int32, int64 or uint8");
}

absl::StatusOr<space::Space> ReadComposite(const Json& json, bool is_dict, int depth) {
  const Json& spaces = Member(json, "spaces");
  if (is_dict ? !spaces.is_object() : !spaces.is_array()) {
    return Wrong("spaces", spaces, is_dict ? "a mapping" : "a list");
  }
  std::vector<std::pair<std::string, space::Space>> items;
  std::vector<space::Space> children;
  for (const auto& [key, value] : spaces.items()) {
    TROUPE_ASSIGN_OR_RETURN(space::Space child, ReadSpace(value, depth + 1));
    if (is_dict) {
      items.emplace_back(key, std::move(child));
    } else {
      children.push_back(std::move(child));
    }
  }
  return is_dict ? space::Space::Dict(std::move(items)) : space::Space::Tuple(std::move(children));
}

}  // namespace

absl::StatusOr<space::Space> ReadSpace(const Json& json, int depth) {
  if (!json.is_object()) return Wrong("a space", json, "a mapping with its type");
  if (depth > kMaxDepth) {
    return absl::InvalidArgumentError(absl::StrCat("a space is nested deeper than ", kMaxDepth, " levels"));
  }
  const Json& type = Member(json, "type");
  if (type == "Box") return ReadBox(json);
  if (type == "Discrete") {
    const Json& n = Member(json, "n");
    const Json& start = Member(json, "start");
    if (!n.is_number_integer()) return Wrong("n of a Discrete", n, "an integer");
    if (!start.is_null() && !start.is_number_integer()) return Wrong("start of a Discrete", start, "an integer");
    return space::Space::Discrete(n.get<int64_t>(), start.is_null() ? 0 : start.get<int64_t>());
  }
  if (type == "MultiDiscrete") {
    TROUPE_ASSIGN_OR_RETURN(std::vector<int64_t> nvec, Integers(Member(json, "nvec"), "nvec of a MultiDiscrete"));
    return space::Space::MultiDiscrete(std::move(nvec));
  }
  if (type == "MultiBinary") {
    const Json& n = Member(json, "n");
    if (!n.is_number_integer()) return Wrong("n of a MultiBinary", n, "an integer");
    return space::Space::MultiBinary(n.get<int64_t>());
  }
  if (type == "Dict" || type == "Tuple") return ReadComposite(json, type == "Dict", depth);
  return Wrong("the type of a space", type, "Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple");
}

absl::StatusOr<env::EnvSpec> ReadDescription(const std::string& name, const Json& description) {
  env::EnvSpec spec;
  spec.name = name;
  const Json& agents = Member(description, "agents");
  if (!agents.is_array()) return Wrong("agents", agents, "a list");
  for (const Json& agent : agents) {
    const Json& id = Member(agent, "id");
    if (!id.is_string()) return Wrong("an agent's id", id, "a string");
    const auto read = [&](const char* key) -> absl::StatusOr<space::Space> {
      absl::StatusOr<space::Space> space = ReadSpace(Member(agent, key));
      if (space.ok()) return space;
      return absl::InvalidArgumentError(absl::StrCat("agent '", base::LogSafe(id.get<std::string>()), "', ", key, ": ",
                                                     std::string(space.status().message())));
    };
    env::AgentSpec& made = spec.possible_agents.emplace_back();
    made.id = env::AgentId(id.get<std::string>());
    TROUPE_ASSIGN_OR_RETURN(made.observation_space, read("observation_space"));
    TROUPE_ASSIGN_OR_RETURN(made.action_space, read("action_space"));
    made.has_action_mask = Member(agent, "has_action_mask") == true;
  }
  const Json& kind = Member(description, "state_kind");
  if (kind != "none") {
    if (kind != "per_env" && kind != "per_agent") return Wrong("state_kind", kind, "none, per_env or per_agent");
    spec.state_kind = kind == "per_env" ? env::StateKind::kPerEnv : env::StateKind::kPerAgent;
    TROUPE_ASSIGN_OR_RETURN(spec.state_space, ReadSpace(Member(description, "state_space")));
  }
  spec.has_agent_mask = Member(description, "has_agent_mask") == true;
  const Json& columns = Member(description, "info_columns");
  if (!columns.is_array()) return Wrong("info_columns", columns, "a list");
  for (const Json& column : columns) {
    if (!column.is_string()) return Wrong("an info column", column, "a string");
    spec.info_columns.push_back(column.get<std::string>());
  }
  const Json& steps = Member(description, "max_episode_steps");
  if (!steps.is_number_integer()) return Wrong("max_episode_steps", steps, "an integer");
  spec.max_episode_steps = steps.get<int64_t>();
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  return spec;
}

std::string RecognizedAs(const Json& description) {
  const Json& words = Member(description, "recognized_as");
  return words.is_string() ? base::LogSafe(words.get<std::string>(), kMaxWords) : "";
}

}  // namespace troupe::envhost
