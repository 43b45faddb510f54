#include "lib/env/env_spec.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"

namespace troupe::env {
namespace {

constexpr size_t kMaxAgents = 1024;
// A byte that is no UTF-8 becomes three in a policy table, which takes ids of 384.
constexpr size_t kMaxAgentIdBytes = 128;

std::string_view StateKindName(StateKind kind) {
  switch (kind) {
    case StateKind::kNone:
      return "none";
    case StateKind::kPerEnv:
      return "per_env";
    case StateKind::kPerAgent:
      return "per_agent";
  }
  return "unknown";
}

}  // namespace

absl::Status EnvSpec::Validate() const {
  const auto error = [this](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("environment '", base::LogSafe(name), "': ", parts...));
  };
  if (name.empty()) return error("its name is empty");
  if (possible_agents.empty()) return error("has no agents, expected at least one");
  if (possible_agents.size() > kMaxAgents)
    return error("has ", possible_agents.size(), " agents, expected at most ", kMaxAgents);
  std::set<AgentId> seen;
  for (const AgentSpec& agent : possible_agents) {
    const std::string id = base::LogSafe(agent.id.value());
    if (id.empty()) return error("an agent id is empty");
    if (agent.id.value().size() > kMaxAgentIdBytes) {
      return error("agent '", id, "' has an id of ", agent.id.value().size(), " bytes, expected at most ",
                   kMaxAgentIdBytes);
    }
    if (agent.id.value() == "__all__") return error("agent id '__all__' is reserved");
    if (!seen.insert(agent.id).second) return error("agent '", id, "' is there twice");
    if (!agent.observation_space.has_value()) return error("agent '", id, "' has no observation space");
    if (!agent.action_space.has_value()) return error("agent '", id, "' has no action space");
    if (agent.has_action_mask && agent.action_space.mask_size() == 0) {
      return error("agent '", id, "' has an action mask but the continuous action space ",
                   agent.action_space.ToString(), ", expected one with a discrete part");
    }
  }
  if ((state_kind != StateKind::kNone) != state_space.has_value()) {
    return error("state kind is ", std::string(StateKindName(state_kind)), " and state space ", state_space.ToString(),
                 ", expected both or neither");
  }
  if (state_space.flat_dtype() != tensor::DType::kFloat32)
    return error("state space is ", state_space.ToString(), ", expected float rows");
  const std::set<std::string> columns(info_columns.begin(), info_columns.end());
  if (columns.size() != info_columns.size() || columns.count("") != 0)
    return error("info columns must have different, non-empty names");
  if (max_episode_steps < 0) return error("max_episode_steps is ", max_episode_steps, ", expected at least 0");
  return absl::OkStatus();
}

absl::StatusOr<AgentSlot> EnvSpec::FindAgent(const AgentId& id) const {
  for (size_t i = 0; i < possible_agents.size(); ++i) {
    if (possible_agents[i].id == id) return AgentSlot(static_cast<int32_t>(i));
  }
  return absl::NotFoundError(
      absl::StrCat("environment ", base::LogSafe(name), " has no agent '", base::LogSafe(id.value()), "'"));
}

std::string EnvSpec::ToString() const {
  std::string text = absl::StrCat("env: ", name, "\n");
  for (const AgentSpec& agent : possible_agents) {
    absl::StrAppend(&text, "agent ", agent.id.value(), ": observation ", agent.observation_space.ToString(),
                    ", action ", agent.action_space.ToString(), agent.has_action_mask ? ", action mask" : "", "\n");
  }
  absl::StrAppend(&text, "state: ", std::string(StateKindName(state_kind)), " ", state_space.ToString(), "\n");
  absl::StrAppend(&text, "agent mask: ", has_agent_mask ? "yes" : "no", "\ninfo columns: [",
                  absl::StrJoin(info_columns, ", "), "]\nmax episode steps: ", max_episode_steps, "\n");
  return text;
}

}  // namespace troupe::env
