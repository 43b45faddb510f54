#include "lib/config/external.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/space/space.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr char kSpaces[] = "env.external.spaces";

std::string KeyOf(const std::string& agent, const std::string& name) {
  return absl::StrCat(kSpaces, ".", base::LogSafe(agent, 64), name.empty() ? "" : ".", name);
}

absl::StatusOr<space::Space> SpaceOf(const RunConfig& config, const std::string& key, const v1::Argument& argument) {
  if (argument.value_case() != v1::Argument::kStringValue) {
    return config.KeyError(key, "expected a space as text, as \"Box(-1, 1, [4])\"");
  }
  absl::StatusOr<space::Space> space = space::ParseSpace(argument.string_value());
  if (!space.ok()) return config.KeyError(key, std::string(space.status().message()));
  return space;
}

absl::StatusOr<env::AgentSpec> AgentOf(const RunConfig& config, const v1::Argument& entry) {
  env::AgentSpec agent;
  agent.id = base::AgentId(entry.name());
  if (entry.value_case() != v1::Argument::kMapValue) {
    return config.KeyError(KeyOf(entry.name(), ""), "expected {obs_space, act_space, action_mask}");
  }
  for (const v1::Argument& each : entry.map_value().entries()) {
    const std::string key = KeyOf(entry.name(), base::LogSafe(each.name(), 64));
    if (each.name() == "obs_space") {
      TROUPE_ASSIGN_OR_RETURN(agent.observation_space, SpaceOf(config, key, each));
    } else if (each.name() == "act_space") {
      TROUPE_ASSIGN_OR_RETURN(agent.action_space, SpaceOf(config, key, each));
    } else if (each.name() == "action_mask" && each.value_case() == v1::Argument::kBoolValue) {
      agent.has_action_mask = each.bool_value();
    } else {
      return config.KeyError(key, each.name() == "action_mask"
                                      ? "expected true or false"
                                      : "unknown key; an agent has obs_space, act_space and action_mask");
    }
  }
  for (const auto& [name, is_there] : {std::pair("obs_space", agent.observation_space.has_value()),
                                       std::pair("act_space", agent.action_space.has_value())}) {
    if (!is_there) return config.KeyError(KeyOf(entry.name(), name), "is missing, expected a space as text");
  }
  if (agent.has_action_mask && agent.action_space.mask_size() == 0) {
    return config.KeyError(KeyOf(entry.name(), "action_mask"), "got true, but nothing of act_space is discrete");
  }
  return agent;
}

}  // namespace

bool IsExternal(const RunConfig& config) { return !config.proto().env().external().spaces().empty(); }

ExternalOptions ExternalOptionsOf(const RunConfig& config) {
  const v1::ExternalConfig& external = config.proto().env().external();
  ExternalOptions options;
  options.address = external.address();
  options.max_episodes = static_cast<size_t>(external.max_episodes());
  options.idle_timeout = absl::Seconds(external.idle_timeout_s());
  return options;
}

absl::StatusOr<std::shared_ptr<const env::EnvSpec>> ExternalSpecOf(const RunConfig& config) {
  const v1::EnvConfig& from = config.proto().env();
  for (const auto& [key, text] : {std::pair("env.name", from.name()), std::pair("env.plugin", from.plugin())}) {
    if (text.empty()) continue;
    return config.KeyError(
        key, absl::StrCat("got \"", base::LogSafe(text, 128), "\" beside ", kSpaces, ", expected one of the two"));
  }
  if (!from.groups().empty()) {
    return config.KeyError("env.groups", absl::StrCat("got ", from.groups().size(), " groups beside ", kSpaces,
                                                      ", expected none: clients speak for each agent"));
  }
  auto spec = std::make_shared<env::EnvSpec>();
  spec->name = "external";
  for (const v1::Argument& entry : from.external().spaces()) {
    TROUPE_ASSIGN_OR_RETURN(env::AgentSpec agent, AgentOf(config, entry));
    spec->possible_agents.push_back(std::move(agent));
  }
  if (const std::string& text = from.external().state_space(); !text.empty()) {
    absl::StatusOr<space::Space> space = space::ParseSpace(text);
    if (!space.ok()) return config.KeyError("env.external.state_space", std::string(space.status().message()));
    if (space->flat_dtype() != tensor::DType::kFloat32) {
      return config.KeyError("env.external.state_space", "got a uint8 Box, expected a space of floats");
    }
    spec->state_kind = env::StateKind::kPerEnv;
    spec->state_space = *std::move(space);
  }
  if (const absl::Status valid = spec->Validate(); !valid.ok()) {
    return config.KeyError(kSpaces, std::string(valid.message()));
  }
  return std::shared_ptr<const env::EnvSpec>(std::move(spec));
}

}  // namespace troupe::config
