#include "lib/config/overrides.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/schema.h"
#include "lib/config/yaml_loader.h"
#include "lib/config/yaml_writer.h"
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

bool HasField(const Message& message, const std::string& name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) return false;
  return field->is_repeated() ? message.GetReflection()->FieldSize(message, field) > 0
                              : message.GetReflection()->HasField(message, field);
}

/// The parts of the two messages that are one key in two ways: who says one takes the other back.
void ClearOtherWay(const Message& overrides, Message* settings) {
  for (const auto& [said, other] :
       {std::pair("minibatch_size", "num_minibatches"), {"num_minibatches", "minibatch_size"}}) {
    const FieldDescriptor* const cleared = settings->GetDescriptor()->FindFieldByName(other);
    if (cleared != nullptr && HasField(overrides, said)) settings->GetReflection()->ClearField(settings, cleared);
  }
}

/// Sets in `settings`, an algorithm's options, what `overrides` says; they may have been read as another's.
void OverrideOptions(const Message& overrides, Message* settings) {
  ClearOtherWay(overrides, settings);
  if (overrides.GetDescriptor() == settings->GetDescriptor()) return Override(overrides, settings);
  std::vector<const FieldDescriptor*> fields;
  overrides.GetReflection()->ListFields(overrides, &fields);
  for (const FieldDescriptor* const field : fields) {
    const FieldDescriptor* const same = settings->GetDescriptor()->FindFieldByName(field->name());
    if (same == nullptr) continue;  // ResolveSettings refuses it
    PlaceMap places;
    const AlgorithmNames names;
    YamlLoader loader("", "", &names, &places);
    TROUPE_CHECK(loader.LoadDefault(YAML::Load(ValueText(overrides, *field)), *same, settings).ok());
  }
}

/// The entry of multi_agent.agents that says something of the agent; nullptr: none.
const v1::AgentConfig* FindAgentConfig(const RunConfig& config, std::string_view agent) {
  for (const v1::AgentConfig& entry : config.proto().multi_agent().agents()) {
    if (policy::GlobMatches(entry.agents(), agent)) return &entry;
  }
  return nullptr;
}

/// The last layer of a policy's settings, which is made where there is none.
v1::AlgorithmConfig* OwnAlgorithm(const SettingsOf& of, v1::MultiAgentConfig* multi_agent) {
  for (v1::AgentConfig& agent : *multi_agent->mutable_agents()) {
    if (!of.own_agent.empty() && policy::GlobMatches(agent.agents(), of.own_agent)) return agent.mutable_algorithm();
  }
  for (v1::PolicyConfig& policy : *multi_agent->mutable_policies()) {
    if (policy.id() == of.policy.value()) return policy.mutable_algorithm();
  }
  v1::PolicyConfig* const added = multi_agent->add_policies();
  added->set_id(of.policy.value());
  return added->mutable_algorithm();
}

bool Says(const v1::AgentConfig& agent) { return agent.has_model() || agent.has_algorithm(); }

/// What says something of a policy's algorithm, from the run to the agent.
struct Layer {
  std::string key;  ///< "algorithm", "multi_agent.policies.left.algorithm"
  const v1::AlgorithmConfig* says;
  v1::AlgorithmName name;    ///< its own, or what it inherits
  std::string name_section;  ///< the key of the layer that gives the name
};
std::vector<Layer> LayersOf(const RunConfig& config, const SettingsOf& of) {
  const v1::AlgorithmConfig& run = config.proto().algorithm();
  std::vector<Layer> layers{{"algorithm", &run, run.name(), "algorithm"}};
  const auto add = [&layers](const std::string& whose, const v1::AlgorithmConfig& says) {
    Layer layer = layers.back();
    layer.key = JoinKey(whose, "algorithm");
    layer.says = &says;
    if (says.has_name()) {
      layer.name = says.name();
      layer.name_section = layer.key;
    }
    layers.push_back(std::move(layer));
  };
  if (const v1::PolicyConfig* const policy = FindPolicyConfig(config, of.policy)) {
    add(JoinKey("multi_agent.policies", of.policy.value()), policy->algorithm());
  }
  if (!of.own_agent.empty()) {
    const v1::AgentConfig& agent = *FindAgentConfig(config, of.own_agent);
    add(JoinKey(kAgents, base::LogSafe(agent.agents(), 160)), agent.algorithm());
  }
  return layers;
}

/// Refuses a key that was read as another algorithm's, and that the one in force has not.
absl::Status CheckOptions(const RunConfig& config, const SettingsOf& of) {
  for (const Layer& layer : LayersOf(config, of)) {
    const FieldDescriptor* const options = OptionsIn(*layer.says);
    if (options == nullptr || options == &OptionsOf(layer.name)) continue;
    const Message& said = layer.says->GetReflection()->GetMessage(*layer.says, options);
    std::vector<const FieldDescriptor*> fields;
    said.GetReflection()->ListFields(said, &fields);
    for (const FieldDescriptor* const field : fields) {
      if (FindOption(OptionsOf(layer.name), field->name()) != nullptr) continue;
      const std::string key = JoinKey(layer.key, field->name());
      return absl::InvalidArgumentError(
          absl::StrCat(config.Where(key), ": ", key, " ",
                       OfAnotherAlgorithm(field->name(), layer.name, JoinKey(layer.name_section, "name"))));
    }
  }
  return absl::OkStatus();
}

absl::Status AgentError(const RunConfig& config, const std::string& glob, const std::string& text) {
  const std::string key = glob.empty() ? kAgents : JoinKey(kAgents, glob);
  return absl::InvalidArgumentError(absl::StrCat(config.Where(key), ": ", base::LogSafe(key, 160), ": ", text));
}

/// Whose settings are whose: ResolveSettings without a look at what they are.
absl::StatusOr<std::vector<SettingsOf>> OwnAgents(const RunConfig& config, absl::Span<const std::string> agents,
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
  TROUPE_ASSIGN_OR_RETURN(std::vector<SettingsOf> settings, OwnAgents(config, agents, policies, players));
  for (const SettingsOf& of : settings) TROUPE_RETURN_IF_ERROR(CheckOptions(config, of));
  return settings;
}

const v1::PolicyConfig* FindPolicyConfig(const RunConfig& config, const policy::PolicyId& id) {
  for (const v1::PolicyConfig& policy : config.proto().multi_agent().policies()) {
    if (policy.id() == id.value()) return &policy;
  }
  return nullptr;
}

v1::AlgorithmConfig AlgorithmOf(const RunConfig& config, const SettingsOf& of) {
  const std::vector<Layer> layers = LayersOf(config, of);
  const FieldDescriptor& options = OptionsOf(layers.back().name);
  v1::AlgorithmConfig algorithm = config.proto().algorithm();
  SelectOptions(layers.back().name, &algorithm);
  for (size_t i = 1; i < layers.size(); ++i) {
    v1::AlgorithmConfig common = *layers[i].says;
    const FieldDescriptor* const said = OptionsIn(common);
    if (said != nullptr) common.GetReflection()->ClearField(&common, said);
    Override(common, &algorithm);
    if (said == nullptr || &OptionsOf(layers[i].name) != &options) continue;
    OverrideOptions(common.GetReflection()->GetMessage(*layers[i].says, said), MutableOptions(options, &algorithm));
  }
  return algorithm;
}

v1::ModelConfig ModelOf(const RunConfig& config, const SettingsOf& of) {
  v1::ModelConfig model = config.proto().model();
  if (const v1::PolicyConfig* policy = FindPolicyConfig(config, of.policy)) Override(policy->model(), &model);
  if (!of.own_agent.empty()) Override(FindAgentConfig(config, of.own_agent)->model(), &model);
  return model;
}

RunConfig WithOwnOptions(const RunConfig& config, const SettingsOf& of, const v1::AlgorithmConfig& said,
                         absl::Span<const std::string> keys) {
  const auto proto = std::make_shared<v1::RunConfig>(config.proto());
  v1::AlgorithmConfig* const own = OwnAlgorithm(of, proto->mutable_multi_agent());
  const v1::AlgorithmConfig before = *own;
  const FieldDescriptor& entry = OptionsOf(LayersOf(config, of).back().name);
  const FieldDescriptor* const read_as = OptionsIn(before);
  Message* const options = MutableOptions(entry, own);
  if (read_as != nullptr && read_as != &entry) {
    OverrideOptions(before.GetReflection()->GetMessage(before, read_as), options);
  }
  const Message& from = said.GetReflection()->GetMessage(said, OptionsIn(said));
  for (const std::string& key : keys) {
    CopyField(from, *options->GetDescriptor()->FindFieldByName(key), options);
  }
  return config.With(proto);
}

std::string AlgorithmKey(const RunConfig& config, const SettingsOf& of, const std::string& name) {
  const std::vector<Layer> layers = LayersOf(config, of);
  const FieldDescriptor& options = OptionsOf(layers.back().name);
  const bool is_option = FindOption(options, name) != nullptr;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (is_option && &OptionsOf(layer->name) != &options) continue;
    const KeyIn key = FindKey(*layer->says, name);
    if (key.field != nullptr && HasField(*key.message, name)) return JoinKey(layer->key, name);
  }
  // A default: of the run's algorithm, or of the one that an override names.
  const bool is_runs = !is_option || &OptionsOf(layers[0].name) == &options;
  return JoinKey(is_runs ? "algorithm" : layers.back().name_section, name);
}

std::string ModelKey(const RunConfig& config, const SettingsOf& of, const std::string& name) {
  if (!of.own_agent.empty()) {
    const v1::AgentConfig& agent = *FindAgentConfig(config, of.own_agent);
    if (HasField(agent.model(), name)) {
      return JoinKey(JoinKey(kAgents, base::LogSafe(agent.agents(), 160)), JoinKey("model", name));
    }
  }
  const v1::PolicyConfig* const policy = FindPolicyConfig(config, of.policy);
  if (policy != nullptr && HasField(policy->model(), name)) {
    return JoinKey(JoinKey("multi_agent.policies", of.policy.value()), JoinKey("model", name));
  }
  return JoinKey("model", name);
}

}  // namespace troupe::config
