// The JSON of a PolicyTable:
//   {"format": 2, "revision": 12, "agents": ["agent_0"],
//    "policies": [{"slot": 0, "id": "main", "since": 0, "trains": true, "class": "trained", "observation_space":
//    "Box(...)", ..., "actor": {"role": "actor", "inputs": ["observation"], "encoder": "mlp", ...},
//    "learner_networks": [{"role": "critic", ...}]}], "mapping": [{"agents": "*", "policies": [{"policy": "main",
//    "weight": 1.0}], "function": "NAME"}]}
// Format 1, without "format", has "model" and "critic_input" in the place of the networks.

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/parse_json.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include <nlohmann/json.hpp>

namespace troupe::policy {
namespace {

using Json = nlohmann::json;

constexpr int64_t kOldestTableFormat = 1;
constexpr int64_t kTableFormat = 2;
/// "observation_scaling" by PolicySpec::bytes_by_255, which is true where it is absent.
constexpr std::array<std::pair<bool, const char*>, 1> kScalings = {{{false, "bounds"}}};

/// Of format 1.
constexpr std::array<std::pair<NetworkInput, const char*>, 3> kCriticInputs = {{
    {NetworkInput::kObservation, "observation"},
    {NetworkInput::kJointObservation, "joint_observation"},
    {NetworkInput::kState, "global_state"},
}};
constexpr std::array<std::pair<ActionBoundMethod, const char*>, 3> kBoundMethods = {{
    {ActionBoundMethod::kNone, "none"},
    {ActionBoundMethod::kClip, "clip"},
    {ActionBoundMethod::kTanh, "tanh"},
}};

template <typename Table, typename Value>
const char* WordOf(const Table& table, Value value) {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "unknown";
}

Json ConvLayersToJson(const std::vector<ConvLayer>& layers) {
  Json json = Json::array();
  for (const ConvLayer& layer : layers) {
    json.push_back({{"channels", layer.channels}, {"kernel", layer.kernel}, {"stride", layer.stride}});
  }
  return json;
}

Json ModuleToJson(const ModuleSpec& module) {
  Json tensors = Json::array();
  for (const ModuleTensor& tensor : module.tensors) {
    tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"is_buffer", tensor.is_buffer}});
  }
  Json json = {{"sha256", module.sha256}, {"tensors", std::move(tensors)}};
  if (module.state_size != 0) json["state_size"] = module.state_size;
  return json;
}

/// Whether it may have layers behind a core or a shared encoder.
bool HasHead(const NetworkSpec& network) { return network.core.remembers() || network.encoder == EncoderKind::kShared; }

Json NetworkToJson(const NetworkSpec& network) {
  Json inputs = Json::array();
  for (const NetworkInput input : network.inputs) inputs.push_back(std::string(NetworkInputName(input)));
  Json json = {{"role", network.role},
               {"inputs", std::move(inputs)},
               {"encoder", WordOf(kEncoderNames, network.encoder)},
               {"core", WordOf(kCoreNames, network.core.kind)},
               {"hidden_sizes", network.hidden_sizes},
               {"activation", std::string(ActivationName(network.activation))},
               {"output_gain", network.output_gain}};
  if (network.core.remembers()) {
    json["core_size"] = network.core.size;
    json["core_layers"] = network.core.layers;
  }
  if (HasHead(network)) json["head_hidden_sizes"] = network.head_hidden_sizes;
  // What is new is written only where it says something: a table without has the text of before. An older build that
  // passes over a member finds another spec hash.
  if (network.encoder == EncoderKind::kCnn) json["conv_layers"] = ConvLayersToJson(network.conv_layers);
  if (network.encoder == EncoderKind::kLeaves) {
    json["leaf_encoders"] = Json::array();
    for (const LeafEncoder& encoder : network.leaf_encoders) {
      json["leaf_encoders"].push_back({{"leaf", encoder.leaf},
                                       {"conv_layers", ConvLayersToJson(encoder.conv_layers)},
                                       {"hidden_sizes", encoder.hidden_sizes}});
    }
  }
  if (network.encoder == EncoderKind::kAttention) {
    const AttentionSpec& attention = network.attention;
    json["attention"] = {{"size", attention.size},
                         {"heads", attention.heads},
                         {"observation_sizes", attention.observation_sizes},
                         {"agents", attention.agents}};
  }
  if (network.encoder == EncoderKind::kTorchScript) json["torchscript"] = ModuleToJson(network.module);
  if (network.layer_norm) json["layer_norm"] = true;
  if (network.initializer != Initializer::kOrthogonal) {
    json["initializer"] = WordOf(kInitializerNames, network.initializer);
  }
  if (network.hidden_gain != 0) json["hidden_gain"] = network.hidden_gain;
  if (network.action_values) json["action_values"] = true;
  if (network.has_target) json["has_target"] = true;
  return json;
}

Json EntryToJson(PolicySlot slot, const PolicyEntry& entry, TableReader reader) {
  const PolicySpec& spec = entry.spec;
  const PolicyClass told = reader == TableReader::kWorker ? spec.policy_class.ForWorkers() : spec.policy_class;
  Json learner_networks = Json::array();
  for (const NetworkSpec& network : spec.learner_networks) learner_networks.push_back(NetworkToJson(network));
  Json json = {{"slot", slot.value()},
               {"id", spec.id.value()},
               {"since", entry.since},
               {"removed", entry.removed},
               {"replaced", entry.replaced},
               {"trains", entry.trains},
               {"class", told.ToString()},
               {"observation_space", spec.observation_space.ToString()},
               {"action_space", spec.action_space.ToString()},
               {"actor", NetworkToJson(spec.actor)},
               {"learner_networks", std::move(learner_networks)},
               {"initial_log_std", spec.initial_log_std},
               {"joint_observation_size", spec.joint_observation_size},
               {"state_size", spec.state_size},
               {"agent_id_size", spec.agent_id_size},
               {"normalize_observations", spec.normalize_observations},
               {"has_action_mask", spec.has_action_mask},
               {"action_bound_method", WordOf(kBoundMethods, spec.action_bound_method)},
               {"action_scaling", spec.action_scaling}};
  if (reader == TableReader::kRun && !entry.settings.empty()) json["settings"] = entry.settings;
  if (spec.sequence_length > 0) json["sequence_length"] = spec.sequence_length;
  if (spec.continuous != ContinuousDistribution::kGaussian) {
    json["continuous"] = WordOf(kContinuousDistributionNames, spec.continuous);
  }
  if (!spec.free_log_std) json["free_log_std"] = false;
  if (spec.min_log_std != kMinLogStd) json["min_log_std"] = spec.min_log_std;
  if (spec.max_log_std != kMaxLogStd) json["max_log_std"] = spec.max_log_std;
  if (spec.normalize_state) json["normalize_state"] = true;
  if (!spec.bytes_by_255 && spec.bytes_have_bounds()) json["observation_scaling"] = kScalings[0].second;
  if (spec.reward_discount != 1) json["reward_discount"] = spec.reward_discount;
  for (const LearnerNumber& number : spec.learner_numbers) {
    json["learner_numbers"].push_back({{"name", number.name}, {"initial", number.initial}});
  }
  if (spec.joint_action_size > 0) json["joint_action_size"] = spec.joint_action_size;
  return json;
}

/// Reads the members of one object; the first error stays.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) Fail("", "an object", object);
  }

  const absl::Status& status() const { return status_; }
  absl::Status Error(const char* key, const std::string& text) const {
    return absl::InvalidArgumentError(absl::StrCat("policy table: ", where_, *key == '\0' ? "" : ".", key, " ", text));
  }

  const std::string& where() const { return where_; }
  /// For members of newer versions: whoever wrote this may have known none.
  bool Has(const char* key) const { return object_.is_object() && object_.contains(key); }

  const Json& Array(const char* key) {
    const Json* value = Member(key, "a list");
    if (value != nullptr && value->is_array()) return *value;
    if (value != nullptr) Fail(key, "a list", *value);
    return empty_;
  }
  std::string Text(const char* key) {
    const Json* value = Member(key, "a text");
    if (value == nullptr) return "";
    if (value->is_string()) return value->get<std::string>();
    Fail(key, "a text", *value);
    return "";
  }
  bool Truth(const char* key) {
    const Json* value = Member(key, "true or false");
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    Fail(key, "true or false", *value);
    return false;
  }
  int64_t Integer(const char* key, int64_t max) {
    const std::string expected = absl::StrCat("an integer in [0, ", max, "]");
    const Json* value = Member(key, expected);
    if (value == nullptr) return 0;
    if (value->is_number_unsigned() && value->get<uint64_t>() <= static_cast<uint64_t>(max)) {
      return value->get<int64_t>();
    }
    Fail(key, expected, *value);
    return 0;
  }
  double Number(const char* key) {
    const Json* value = Member(key, "a number");
    if (value == nullptr) return 0;
    if (value->is_number()) return value->get<double>();
    Fail(key, "a number", *value);
    return 0;
  }
  template <typename Table>
  auto Word(const char* key, const Table& table) {
    const std::string text = Text(key);
    for (const auto& [value, name] : table) {
      if (text == name) return value;
    }
    if (status_.ok()) {
      status_ = Error(key, absl::StrCat("is \"", base::LogSafe(text, 64), "\", which is unknown; expected one of ",
                                        absl::StrJoin(table, ", ", [](std::string* out, const auto& word) {
                                          out->append(word.second);
                                        })));
    }
    return table[0].first;
  }
  std::vector<int64_t> Sizes(const char* key) {
    std::vector<int64_t> sizes;
    for (const Json& size : Array(key)) {
      if (size.is_number_unsigned() && size.get<uint64_t>() <= INT32_MAX) {
        sizes.push_back(size.get<int64_t>());
      } else {
        Fail(key, "sizes of layers", size);
      }
    }
    return sizes;
  }
  std::vector<std::string> Texts(const char* key, size_t most) {
    std::vector<std::string> texts;
    for (const Json& text : Array(key)) {
      if (!text.is_string() || texts.size() == most) {
        Fail(key, absl::StrCat("at most ", most, " texts"), text);
        return texts;
      }
      texts.push_back(text.get<std::string>());
    }
    return texts;
  }
  const Json* Object(const char* key) { return Member(key, "an object"); }

 private:
  const Json* Member(const char* key, const std::string& expected) {
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    status_ = Error(key, absl::StrCat("is missing, expected ", expected));
    return nullptr;
  }
  void Fail(const char* key, const std::string& expected, const Json& got) {
    if (status_.ok()) status_ = Error(key, absl::StrCat("is ", got.type_name(), ", expected ", expected));
  }

  const Json& object_;
  const std::string where_;
  const Json empty_ = Json::array();
  absl::Status status_;
};

/// The networks of format 1.
absl::Status ModelFromJson(const Json& entry, PolicySpec* spec) {
  Reader critic(entry, "policies[]");
  const Json* const model = critic.Object("model");
  const NetworkInput input = critic.Word("critic_input", kCriticInputs);
  const int64_t state_size = critic.Integer("critic_state_size", space::Space::kMaxElements);
  const bool critic_agent_id = critic.Truth("critic_agent_id");
  TROUPE_RETURN_IF_ERROR(critic.status());
  if (input == NetworkInput::kObservation && state_size != 0) {
    return critic.Error("critic_state_size", absl::StrCat("is ", state_size, ", which does not fit its critic input"));
  }
  spec->SetCriticInput(input, state_size);
  spec->SetCriticAgentId(critic_agent_id);
  Reader reader(*model, "policies[].model");
  spec->actor.hidden_sizes = reader.Sizes("actor_hidden_sizes");
  spec->mutable_critic()->hidden_sizes = reader.Sizes("critic_hidden_sizes");
  const std::string activation = reader.Text("activation");
  spec->actor.output_gain = reader.Number("actor_output_gain");
  spec->initial_log_std = reader.Number("initial_log_std");
  TROUPE_RETURN_IF_ERROR(reader.status());
  TROUPE_ASSIGN_OR_RETURN(const Activation parsed, ParseActivation(activation));
  spec->SetActivation(parsed);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ConvLayer>> ConvLayersFromJson(Reader* reader) {
  std::vector<ConvLayer> layers;
  for (const Json& one : reader->Array("conv_layers")) {
    Reader layer(one, absl::StrCat(reader->where(), ".conv_layers[]"));
    layers.push_back({.channels = layer.Integer("channels", INT32_MAX),
                      .kernel = layer.Integer("kernel", INT32_MAX),
                      .stride = layer.Integer("stride", INT32_MAX)});
    TROUPE_RETURN_IF_ERROR(layer.status());
  }
  return layers;
}

absl::StatusOr<std::vector<LeafEncoder>> LeafEncodersFromJson(Reader* reader) {
  std::vector<LeafEncoder> encoders;
  for (const Json& one : reader->Array("leaf_encoders")) {
    Reader of_leaf(one, absl::StrCat(reader->where(), ".leaf_encoders[]"));
    LeafEncoder& encoder = encoders.emplace_back();
    encoder.leaf = of_leaf.Integer("leaf", INT32_MAX);
    TROUPE_ASSIGN_OR_RETURN(encoder.conv_layers, ConvLayersFromJson(&of_leaf));
    encoder.hidden_sizes = of_leaf.Sizes("hidden_sizes");
    TROUPE_RETURN_IF_ERROR(of_leaf.status());
  }
  return encoders;
}

absl::StatusOr<ModuleSpec> ModuleFromJson(const Json& json, const std::string& where) {
  Reader reader(json, where);
  ModuleSpec module;
  module.sha256 = reader.Text("sha256");
  for (const Json& one : reader.Array("tensors")) {
    Reader tensor(one, where + ".tensors[]");
    module.tensors.push_back(
        {.name = tensor.Text("name"), .shape = tensor.Sizes("shape"), .is_buffer = tensor.Truth("is_buffer")});
    TROUPE_RETURN_IF_ERROR(tensor.status());
  }
  if (reader.Has("state_size")) module.state_size = reader.Integer("state_size", INT32_MAX);
  TROUPE_RETURN_IF_ERROR(reader.status());
  return module;
}

absl::StatusOr<NetworkSpec> NetworkFromJson(const Json& json, const std::string& where) {
  Reader reader(json, where);
  NetworkSpec network;
  network.role = reader.Text("role");
  network.inputs.clear();
  for (const Json& input : reader.Array("inputs")) {
    if (!input.is_string()) return reader.Error("inputs", "holds what is no text");
    const absl::StatusOr<NetworkInput> parsed = ParseNetworkInput(input.get<std::string>());
    if (!parsed.ok()) return reader.Error("inputs", std::string(parsed.status().message()));
    network.inputs.push_back(*parsed);
  }
  network.encoder = reader.Word("encoder", kEncoderNames);
  network.core.kind = reader.Word("core", kCoreNames);
  if (network.core.remembers()) {
    network.core.size = reader.Integer("core_size", INT32_MAX);
    network.core.layers = reader.Integer("core_layers", INT32_MAX);
  }
  if (HasHead(network)) network.head_hidden_sizes = reader.Sizes("head_hidden_sizes");
  if (network.encoder == EncoderKind::kCnn) {
    TROUPE_ASSIGN_OR_RETURN(network.conv_layers, ConvLayersFromJson(&reader));
  }
  if (network.encoder == EncoderKind::kLeaves) {
    TROUPE_ASSIGN_OR_RETURN(network.leaf_encoders, LeafEncodersFromJson(&reader));
  }
  if (network.encoder == EncoderKind::kAttention) {
    const Json* const object = reader.Object("attention");
    TROUPE_RETURN_IF_ERROR(reader.status());
    Reader attention(*object, absl::StrCat(reader.where(), ".attention"));
    network.attention = {.size = attention.Integer("size", INT32_MAX),
                         .heads = attention.Integer("heads", INT32_MAX),
                         .observation_sizes = attention.Sizes("observation_sizes"),
                         .agents = attention.Sizes("agents")};
    TROUPE_RETURN_IF_ERROR(attention.status());
  }
  if (network.encoder == EncoderKind::kTorchScript) {
    const Json* const module = reader.Object("torchscript");
    TROUPE_RETURN_IF_ERROR(reader.status());
    TROUPE_ASSIGN_OR_RETURN(network.module, ModuleFromJson(*module, where + ".torchscript"));
  }
  if (reader.Has("layer_norm")) network.layer_norm = reader.Truth("layer_norm");
  if (reader.Has("hidden_gain")) network.hidden_gain = reader.Number("hidden_gain");
  if (reader.Has("action_values")) network.action_values = reader.Truth("action_values");
  if (reader.Has("has_target")) network.has_target = reader.Truth("has_target");
  if (reader.Has("initializer")) network.initializer = reader.Word("initializer", kInitializerNames);
  network.hidden_sizes = reader.Sizes("hidden_sizes");
  const std::string activation = reader.Text("activation");
  network.output_gain = reader.Number("output_gain");
  TROUPE_RETURN_IF_ERROR(reader.status());
  TROUPE_ASSIGN_OR_RETURN(network.activation, ParseActivation(activation));
  return network;
}

absl::Status NetworksFromJson(const Json& entry, PolicySpec* spec) {
  Reader reader(entry, "policies[]");
  const Json* const actor = reader.Object("actor");
  const Json& networks = reader.Array("learner_networks");
  spec->initial_log_std = reader.Number("initial_log_std");
  spec->joint_observation_size = reader.Integer("joint_observation_size", space::Space::kMaxElements);
  spec->state_size = reader.Integer("state_size", space::Space::kMaxElements);
  TROUPE_RETURN_IF_ERROR(reader.status());
  TROUPE_ASSIGN_OR_RETURN(spec->actor, NetworkFromJson(*actor, "policies[].actor"));
  spec->learner_networks.clear();
  for (const Json& network : networks) {
    TROUPE_ASSIGN_OR_RETURN(spec->learner_networks.emplace_back(),
                            NetworkFromJson(network, "policies[].learner_networks[]"));
  }
  if (reader.Has("learner_numbers")) {
    for (const Json& one : reader.Array("learner_numbers")) {
      Reader number(one, "policies[].learner_numbers[]");
      spec->learner_numbers.push_back({number.Text("name"), number.Number("initial")});
      TROUPE_RETURN_IF_ERROR(number.status());
    }
  }
  if (reader.Has("joint_action_size")) {
    spec->joint_action_size = reader.Integer("joint_action_size", space::Space::kMaxElements);
  }
  if (spec->remembers()) spec->sequence_length = reader.Integer("sequence_length", INT32_MAX);
  return reader.status();
}

absl::StatusOr<PolicyEntry> EntryFromJson(const Json& json, int64_t format, int64_t revision, int64_t* slot) {
  Reader reader(json, "policies[]");
  *slot = reader.Integer("slot", static_cast<int64_t>(PolicyTable::kMaxPolicies) - 1);
  PolicyEntry entry;
  PolicySpec& spec = entry.spec;
  spec.id = PolicyId(reader.Text("id"));
  entry.since = reader.Integer("since", revision);
  entry.removed = reader.Integer("removed", revision);
  entry.replaced = reader.Truth("replaced");
  entry.trains = reader.Truth("trains");
  if (reader.Has("settings")) entry.settings = reader.Texts("settings", PolicyTable::kMaxSettings);
  const std::string policy_class = reader.Text("class");
  const std::string observation_space = reader.Text("observation_space");
  const std::string action_space = reader.Text("action_space");
  spec.agent_id_size = reader.Integer("agent_id_size", space::Space::kMaxElements);
  spec.normalize_observations = reader.Truth("normalize_observations");
  spec.has_action_mask = reader.Truth("has_action_mask");
  spec.action_bound_method = reader.Word("action_bound_method", kBoundMethods);
  spec.action_scaling = reader.Truth("action_scaling");
  if (reader.Has("normalize_state")) spec.normalize_state = reader.Truth("normalize_state");
  if (reader.Has("reward_discount")) spec.reward_discount = reader.Number("reward_discount");
  if (reader.Has("continuous")) spec.continuous = reader.Word("continuous", kContinuousDistributionNames);
  if (reader.Has("free_log_std")) spec.free_log_std = reader.Truth("free_log_std");
  if (reader.Has("min_log_std")) spec.min_log_std = reader.Number("min_log_std");
  if (reader.Has("max_log_std")) spec.max_log_std = reader.Number("max_log_std");
  spec.bytes_by_255 = !reader.Has("observation_scaling") || reader.Word("observation_scaling", kScalings);
  TROUPE_RETURN_IF_ERROR(reader.status());
  TROUPE_ASSIGN_OR_RETURN(spec.policy_class, ParsePolicyClass(policy_class));
  TROUPE_ASSIGN_OR_RETURN(spec.observation_space, space::ParseSpace(observation_space));
  TROUPE_ASSIGN_OR_RETURN(spec.action_space, space::ParseSpace(action_space));
  TROUPE_RETURN_IF_ERROR(format == 1 ? ModelFromJson(json, &spec) : NetworksFromJson(json, &spec));
  spec.bytes_by_255 = spec.bytes_by_255 && spec.bytes_have_bounds();
  TROUPE_RETURN_IF_ERROR(spec.Validate());
  if (entry.trains && !spec.policy_class.trainable()) {
    return reader.Error("trains", absl::StrCat("is true, but class ", base::LogSafe(policy_class), " never trains"));
  }
  if (entry.replaced && entry.active()) return reader.Error("replaced", "is true of a policy that was not removed");
  return entry;
}

absl::StatusOr<MappingRule> RuleFromJson(const Json& json) {
  Reader reader(json, "mapping[]");
  MappingRule rule;
  rule.agent_glob = reader.Text("agents");
  for (const Json& choice : reader.Array("policies")) {
    Reader weighted(choice, "mapping[].policies[]");
    const std::string policy = weighted.Text("policy");
    const double weight = weighted.Number("weight");
    TROUPE_RETURN_IF_ERROR(weighted.status());
    rule.policies.push_back({PolicyId(policy), weight});
  }
  if (json.contains("function")) rule.function = reader.Text("function");
  TROUPE_RETURN_IF_ERROR(reader.status());
  return rule;
}

}  // namespace

std::string ToJson(const PolicyTable& table, TableReader reader) {
  Json policies = Json::array();
  for (const PolicySlot slot : table.entries().ids()) {
    if (const PolicyEntry* const entry = table.Find(slot)) policies.push_back(EntryToJson(slot, *entry, reader));
  }
  Json mapping = Json::array();
  for (const MappingRule& rule : table.rules()) {
    Json choices = Json::array();
    for (const WeightedPolicy& weighted : rule.policies) {
      choices.push_back({{"policy", weighted.policy.value()}, {"weight", weighted.weight}});
    }
    mapping.push_back({{"agents", rule.agent_glob}, {"policies", std::move(choices)}});
    if (!rule.function.empty()) mapping.back()["function"] = rule.function;
  }
  // Agents' ids come from environments: what is no UTF-8 in them is replaced, never thrown about.
  return Json{{"format", kTableFormat},
              {"revision", table.revision()},
              {"agents", table.agent_ids()},
              {"policies", std::move(policies)},
              {"mapping", std::move(mapping)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status CheckSize(const PolicyTable& table) {
  // Revisions grow by digits, here and in each policy's `removed` and `replaced`.
  constexpr size_t kGrowth = 32;
  const size_t bytes = ToJson(table).size() + kGrowth * (table.num_slots() + 1);
  if (bytes <= kMaxPolicyTableBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the policies and their mapping take ", bytes,
                                                   " bytes as a table, expected at most ", kMaxPolicyTableBytes,
                                                   "; have fewer policies, or fewer names in policy_mapping"));
}

absl::StatusOr<PolicyTablePtr> PolicyTableFromJson(std::string_view text) {
  const absl::StatusOr<Json> parsed = base::ParseJson(text, {.max_bytes = kMaxPolicyTableBytes});
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat("policy table: ", parsed.status().message()));
  const Json& json = *parsed;
  Reader reader(json, "the table");
  std::shared_ptr<PolicyTable> table(new PolicyTable);
  const int64_t format = json.is_object() && json.contains("format") ? reader.Integer("format", INT64_MAX) : 1;
  if (reader.status().ok() && (format < kOldestTableFormat || format > kTableFormat)) {
    return absl::InvalidArgumentError(absl::StrCat("policy table: got format ", format, ", expected ",
                                                   kOldestTableFormat, " or ", kTableFormat,
                                                   format > kTableFormat ? ": written by a newer troupe" : ""));
  }
  table->revision_ = reader.Integer("revision", INT64_MAX);
  for (const Json& agent : reader.Array("agents")) {
    if (!agent.is_string())
      return reader.Error("agents", absl::StrCat("holds ", agent.type_name(), ", expected texts"));
    if (table->agent_ids_.size() == PolicyTable::kMaxAgents) {
      return reader.Error("agents", absl::StrCat("holds more than ", PolicyTable::kMaxAgents, " texts"));
    }
    const auto& id = agent.get_ref<const std::string&>();
    if (id.size() > PolicyTable::kMaxTableAgentIdBytes) {
      return reader.Error("agents", absl::StrCat("holds a text of ", id.size(), " bytes, expected at most ",
                                                 PolicyTable::kMaxTableAgentIdBytes));
    }
    table->agent_ids_.push_back(agent.get<std::string>());
  }
  for (const Json& policy : reader.Array("policies")) {
    int64_t slot = 0;
    TROUPE_ASSIGN_OR_RETURN(PolicyEntry entry, EntryFromJson(policy, format, table->revision_, &slot));
    if (slot < static_cast<int64_t>(table->entries_.size())) {
      return reader.Error("policies", absl::StrCat("holds slot ", slot, " after slot ", table->entries_.size() - 1,
                                                   ", expected ascending slots"));
    }
    if (entry.active() && table->FindSlot(entry.spec.id).has_value()) {
      return reader.Error("policies", absl::StrCat("holds two policies \"", entry.spec.id.value(), "\""));
    }
    table->entries_.resize(static_cast<size_t>(slot));
    table->entries_.push_back(std::move(entry));
  }
  for (const Json& rule : reader.Array("mapping")) {
    TROUPE_ASSIGN_OR_RETURN(table->rules_.emplace_back(), RuleFromJson(rule));
  }
  TROUPE_RETURN_IF_ERROR(reader.status());
  return PolicyTable::Finish(std::move(table));
}

}  // namespace troupe::policy
