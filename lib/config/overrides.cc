#include "lib/config/overrides.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/config/schema.h"
#include "lib/policy/policy_mapping.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr char kAgents[] = "multi_agent.agents";

/// Every field that `overrides` has, whole: a list or schedule takes the other's place.
void Override(const Message& overrides, Message* settings) {
  std::vector<const FieldDescriptor*> fields;
  overrides.GetReflection()->ListFields(overrides, &fields);
  for (const FieldDescriptor* field : fields) settings->GetReflection()->ClearField(settings, field);
  settings->MergeFrom(overrides);
}

void OverrideAlgorithm(const v1::AlgorithmConfig& overrides, v1::AlgorithmConfig* settings) {
  // Two ways to say one thing.
  if (overrides.has_minibatch_size()) settings->clear_num_minibatches();
  if (overrides.has_num_minibatches()) settings->clear_minibatch_size();
  Override(overrides, settings);
}

/// The entry of multi_agent.agents that says something of the agent; nullptr: none.
const v1::AgentConfig* FindAgentConfig(const RunConfig& config, std::string_view agent) {
  for (const v1::AgentConfig& entry : config.proto().multi_agent().agents()) {
    if (policy::GlobMatches(entry.agents(), agent)) return &entry;
  }
  return nullptr;
}

bool Says(const v1::AgentConfig& agent) { return agent.has_model() || agent.has_algorithm(); }

bool HasField(const Message& message, const std::string& name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) return false;
  return field->is_repeated() ? message.GetReflection()->FieldSize(message, field) > 0
                              : message.GetReflection()->HasField(message, field);
}

absl::Status AgentError(const RunConfig& config, const std::string& glob, const std::string& text) {
  const std::string key = glob.empty() ? kAgents : JoinKey(kAgents, glob);
  return absl::InvalidArgumentError(absl::StrCat(config.Where(key), ": ", base::LogSafe(key, 160), ": ", text));
}

}  // namespace

const std::vector<std::string>& ImmutableKeys() {
  static const auto* const kKeys =
      new std::vector<std::string>{"train_batch_size", "max_policy_lag", "common_reward", "use_parameter_sharing"};
  return *kKeys;
}

bool IsImmutable(std::string_view name) {
  return std::find(ImmutableKeys().begin(), ImmutableKeys().end(), name) != ImmutableKeys().end();
}

absl::StatusOr<std::vector<SettingsOf>> ResolveSettings(const RunConfig& config, absl::Span<const std::string> agents,
                                                        absl::Span<const policy::PolicyId> policies,
                                                        absl::Span<const std::vector<std::string>> players) {
  std::vector<SettingsOf> settings;
  for (const policy::PolicyId& id : policies) settings.push_back({id});
  const auto& entries = config.proto().multi_agent().agents();
  if (entries.empty()) return settings;
  for (const v1::AgentConfig& entry : entries) {
    const bool matches = std::any_of(agents.begin(), agents.end(), [&entry](const std::string& agent) {
      return policy::GlobMatches(entry.agents(), agent);
    });
    if (matches) continue;
    return AgentError(config, entry.agents(),
                      absl::StrCat("matches no agent; the agents are ", absl::StrJoin(agents, ", ")));
  }
  for (const std::string& agent : agents) {
    const v1::AgentConfig* const entry = FindAgentConfig(config, agent);
    if (entry == nullptr) {
      return AgentError(config, "",
                        absl::StrCat("says nothing of agent \"", agent,
                                     "\", expected an entry for every "
                                     "agent; a last \"*\": {} is for those that are left"));
    }
    if (!Says(*entry)) continue;
    std::vector<size_t> played;
    for (size_t p = 0; p < players.size(); ++p) {
      if (std::find(players[p].begin(), players[p].end(), agent) != players[p].end()) played.push_back(p);
    }
    if (played.size() != 1) {
      return AgentError(config, entry->agents(),
                        absl::StrCat("agent \"", agent, "\" may be played by ", played.size(),
                                     " policies, expected one of its own; override multi_agent.policies instead"));
    }
    if (const std::vector<std::string>& others = players[played[0]]; others.size() > 1) {
      return AgentError(config, entry->agents(),
                        absl::StrCat("policy \"", policies[played[0]].value(), "\" of agent \"", agent, "\" plays ",
                                     absl::StrJoin(others, ", "),
                                     ", expected a policy of the agent's own; override multi_agent.policies instead"));
    }
    settings[played[0]].own_agent = agent;
  }
  return settings;
}

const v1::PolicyConfig* FindPolicyConfig(const RunConfig& config, const policy::PolicyId& id) {
  for (const v1::PolicyConfig& policy : config.proto().multi_agent().policies()) {
    if (policy.id() == id.value()) return &policy;
  }
  return nullptr;
}

v1::AlgorithmConfig AlgorithmOf(const RunConfig& config, const SettingsOf& of) {
  v1::AlgorithmConfig algorithm = config.proto().algorithm();
  if (const v1::PolicyConfig* policy = FindPolicyConfig(config, of.policy)) {
    OverrideAlgorithm(policy->algorithm(), &algorithm);
  }
  if (!of.own_agent.empty()) OverrideAlgorithm(FindAgentConfig(config, of.own_agent)->algorithm(), &algorithm);
  return algorithm;
}

v1::ModelConfig ModelOf(const RunConfig& config, const SettingsOf& of) {
  v1::ModelConfig model = config.proto().model();
  if (const v1::PolicyConfig* policy = FindPolicyConfig(config, of.policy)) Override(policy->model(), &model);
  if (!of.own_agent.empty()) Override(FindAgentConfig(config, of.own_agent)->model(), &model);
  return model;
}

std::string AlgorithmKey(const RunConfig& config, const SettingsOf& of, const std::string& name) {
  if (!of.own_agent.empty()) {
    const v1::AgentConfig& agent = *FindAgentConfig(config, of.own_agent);
    if (HasField(agent.algorithm(), name)) {
      return absl::StrCat(JoinKey(kAgents, base::LogSafe(agent.agents(), 160)), ".algorithm.", name);
    }
  }
  const v1::PolicyConfig* const policy = FindPolicyConfig(config, of.policy);
  if (policy != nullptr && HasField(policy->algorithm(), name)) {
    return absl::StrCat("multi_agent.policies.", of.policy.value(), ".algorithm.", name);
  }
  return absl::StrCat("algorithm.", name);
}

}  // namespace troupe::config
