#include "lib/config/key_effects.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/check.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/external.h"
#include "lib/config/image_networks.h"
#include "lib/config/overrides.h"
#include "lib/config/parse_policy_mapping.h"
#include "lib/config/schema.h"
#include "lib/config/torch_modules.h"
#include "lib/config/yaml_loader.h"
#include "lib/config/yaml_writer.h"
#include "lib/policy/module_reader.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/python_callable.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using policy::EncoderKind;
using policy::NetworkSpec;
using policy::PolicySpec;

/// A policy of the run, of which a condition is asked.
struct Reader {
  const ResolvedRun& run;
  const env::EnvRegistry& registry;
  const size_t slot;
  const v1::ModelConfig model;

  const v1::RunConfig& config() const { return run.config.proto(); }
  const PolicySpec& spec() const { return run.policies[slot]; }
  bool has_networks() const { return spec().policy_class.has_weights(); }
  bool acts_continuously() const { return has_networks() && spec().HasContinuousActions(); }
  bool has_critic() const { return !spec().learner_networks.empty(); }
  /// Networks of Troupe's layers: no users' modules.
  std::vector<const NetworkSpec*> networks() const {
    std::vector<const NetworkSpec*> own;
    for (const NetworkSpec* const network : {&spec().actor, &spec().critic()}) {
      const bool is_there = network == &spec().actor || has_critic();
      if (is_there && !IsModule(model, *network)) own.push_back(network);
    }
    return own;
  }
  template <typename Value>
  Value Option(std::string_view name) const {
    const auto& options = run.algorithms[slot].options;
    const auto found = options.find(name);
    const Value* const value = found == options.end() ? nullptr : std::get_if<Value>(&found->second);
    return value == nullptr ? Value{} : *value;
  }
  bool Optimizes(std::string_view one, std::string_view other) const {
    const auto optimizer = Option<std::string>("optimizer");
    return optimizer == one || optimizer == other;
  }
};

bool HasHiddenLayers(const NetworkSpec& network) {
  return !network.hidden_sizes.empty() || !network.head_hidden_sizes.empty() ||
         std::any_of(network.leaf_encoders.begin(), network.leaf_encoders.end(),
                     [](const policy::LeafEncoder& encoder) { return !encoder.hidden_sizes.empty(); });
}

/// Layers with an activation behind them.
bool Activates(const NetworkSpec& network) {
  return HasHiddenLayers(network) || !network.conv_layers.empty() || !network.leaf_encoders.empty() ||
         network.encoder == EncoderKind::kAttention;
}

bool AnyOf(const std::vector<const NetworkSpec*>& networks, bool (*holds)(const NetworkSpec&)) {
  return std::any_of(networks.begin(), networks.end(), [holds](const NetworkSpec* each) { return holds(*each); });
}

/// True if the network has the convolutions of model.conv_filters.
bool Convolves(const Reader& reader, const NetworkSpec& network) {
  const std::vector<policy::ConvLayer> wanted = ConvLayersOf(reader.model.conv_filters());
  return network.encoder == EncoderKind::kCnn ||
         std::any_of(network.leaf_encoders.begin(), network.leaf_encoders.end(),
                     [&wanted](const policy::LeafEncoder& encoder) { return encoder.conv_layers == wanted; });
}

/// True if the environment gives an agent a Dict with that key, of which wrappers leave no trace. True where that
/// cannot be found out. An empty key asks for none.
bool ObservesKey(const Reader& reader, const std::string& key, size_t min_agents) {
  if (key.empty()) return true;
  EnvSettings settings = reader.run.env;
  settings.wrappers = {};
  settings.wrappers.dict_keys = {.state = "", .action_mask = ""};
  const absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> made = MakeEnv(settings, reader.registry);
  if (!made.ok()) return true;
  const std::vector<env::AgentSpec>& agents = (*made)->spec().possible_agents;
  return agents.size() >= min_agents && std::any_of(agents.begin(), agents.end(), [&key](const env::AgentSpec& agent) {
           const space::Space& space = agent.observation_space;
           return space.kind() == space::SpaceKind::kDict &&
                  std::find(space.keys().begin(), space.keys().end(), key) != space.keys().end();
         });
}

/// The conditions under which keys count.
struct Condition {
  std::string_view name;   ///< in KeyRule.counts
  std::string_view needs;  ///< "it needs …"
  /// Keys that decide it, with spaces between them. Where an override has set one, a key of the file that it switched
  /// off is no mistake.
  std::string_view decided_by;
  bool (*holds)(const Reader& reader);
};

constexpr Condition kConditions[] = {
    // Conditions on the run.
    {"several_workers", "num_workers above 1", "num_workers", [](const Reader& r) { return r.run.num_workers > 1; }},
    {"no_num_envs", "num_envs: auto, which would say it for the whole run", "num_envs",
     [](const Reader& r) { return !r.config().has_num_envs(); }},
    {"wandb", "experiment.wandb: true", "experiment.wandb", [](const Reader& r) { return r.run.experiment.wandb; }},
    {"evaluations", "evaluations (evaluation.interval above 0, or evaluation.at_end: true)",
     "evaluation.interval evaluation.at_end",
     [](const Reader& r) { return r.run.evaluation.interval_env_steps > 0 || r.run.evaluation.at_end; }},
    {"evaluations_in_training", "evaluation.interval above 0", "evaluation.interval",
     [](const Reader& r) { return r.run.evaluation.interval_env_steps > 0; }},
    // Conditions on the environment.
    {"own_environment", "an environment that Troupe plays (env.name), not clients (env.external.spaces)", "env.name",
     [](const Reader& r) { return !IsExternal(r.run.config); }},
    {"external", "env.external.spaces", "", [](const Reader& r) { return IsExternal(r.run.config); }},
    {"python_environment", "an environment in Python (env.name: python:MODULE)", "env.name",
     [](const Reader& r) { return policy::IsPythonName(r.config().env().name()); }},
    {"state_key", "several agents that observe a Dict with this key", "env.name env.args",
     [](const Reader& r) { return ObservesKey(r, r.config().env().state_key(), 2); }},
    {"action_mask_key", "an agent that observes a Dict with this key", "env.name env.args",
     [](const Reader& r) { return ObservesKey(r, r.config().env().action_mask_key(), 1); }},
    {"global_state", "an environment with a global state (of one in Python env.python.global_state: true asks for it)",
     "env.name env.args env.python.global_state",
     [](const Reader& r) { return r.run.env_spec.state_kind != env::StateKind::kNone; }},
    {"several_agents", "an environment of several agents", "env.name env.args",
     [](const Reader& r) { return r.run.env_spec.num_agents() > 1; }},
    {"agent_masks", "an environment that marks agents as not active (agent_mask)", "env.name env.args",
     [](const Reader& r) { return r.run.env_spec.has_agent_mask; }},
    // Conditions on a policy and its spaces.
    {"agent_id", "a policy that plays several agents, algorithm.use_agent_id: true, and an algorithm with a critic",
     "env.name env.args multi_agent.policies multi_agent.policy_mapping algorithm.name algorithm.use_agent_id "
     "algorithm.use_parameter_sharing",
     [](const Reader& r) { return r.spec().agent_id_size > 0 && r.has_critic(); }},
    {"continuous_actions", "a policy with networks and continuous actions (a Box)", "env.name env.args",
     [](const Reader& r) { return r.acts_continuously(); }},
    {"log_std",
     "continuous actions (a Box), drawn from a distribution with a deviation (model.action_distribution other than "
     "beta)",
     "env.name env.args model.action_distribution",
     [](const Reader& r) {
       return r.acts_continuously() && r.spec().continuous != policy::ContinuousDistribution::kBeta;
     }},
    // Conditions on its networks.
    {"own_layers", "a network of Troupe's layers, not of TorchScript alone",
     "model.torchscript model.critic_torchscript", [](const Reader& r) { return !r.networks().empty(); }},
    {"own_actor", "an actor of Troupe's layers (no model.torchscript)", "model.torchscript",
     [](const Reader& r) { return !IsModule(r.model, r.spec().actor); }},
    {"critic", "an algorithm with a critic", "algorithm.name", [](const Reader& r) { return r.has_critic(); }},
    {"own_critic", "an algorithm with a critic, and one of Troupe's layers (no model.critic_torchscript)",
     "algorithm.name model.critic_torchscript",
     [](const Reader& r) { return r.has_critic() && !IsModule(r.model, r.spec().critic()); }},
    {"attention", "model.critic_encoder: attention", "model.critic_encoder",
     [](const Reader& r) { return r.spec().critic().encoder == EncoderKind::kAttention; }},
    {"convolutions",
     "a network that convolves images (model.encoder: cnn), none of whose own encoders in model.leaf_encoders say it",
     "env.name env.args model.encoder model.critic_encoder model.leaf_encoders",
     [](const Reader& r) { return Convolves(r, r.spec().actor) || Convolves(r, r.spec().critic()); }},
    {"core", "model.actor_core or model.critic_core: gru or lstm", "model.actor_core model.critic_core",
     [](const Reader& r) { return r.spec().actor.core.remembers() || r.spec().critic().core.remembers(); }},
    {"memory", "a network that remembers (model.actor_core or model.critic_core: gru or lstm)",
     "model.actor_core model.critic_core model.torchscript model.critic_torchscript",
     [](const Reader& r) {
       // A program without LibTorch does not know what a module remembers.
       return r.spec().remembers() ||
              (policy::FindModuleReader() == nullptr && r.networks().size() < (r.has_critic() ? 2u : 1u));
     }},
    {"hidden_layers", "hidden layers of Troupe's (model.actor_hidden_sizes, model.critic_hidden_sizes)",
     "model.torchscript model.critic_torchscript model.actor_hidden_sizes model.critic_hidden_sizes",
     [](const Reader& r) { return AnyOf(r.networks(), HasHiddenLayers); }},
    {"activation",
     "a network with hidden layers and without an activation of its own (model.actor_activation, "
     "model.critic_activation: auto)",
     "model.actor_activation model.critic_activation model.torchscript model.critic_torchscript",
     [](const Reader& r) {
       const std::vector<const NetworkSpec*> networks = r.networks();
       return std::any_of(networks.begin(), networks.end(), [&r](const NetworkSpec* network) {
         const bool is_actor = network == &r.spec().actor;
         return Activates(*network) && !(is_actor ? r.model.has_actor_activation() : r.model.has_critic_activation());
       });
     }},
    {"actor_activation", "an actor with hidden layers of Troupe's", "model.torchscript model.actor_hidden_sizes",
     [](const Reader& r) { return !IsModule(r.model, r.spec().actor) && Activates(r.spec().actor); }},
    {"critic_activation", "a critic with hidden layers of its own",
     "algorithm.name model.critic_torchscript model.critic_hidden_sizes model.critic_encoder",
     [](const Reader& r) {
       return r.has_critic() && !IsModule(r.model, r.spec().critic()) && Activates(r.spec().critic());
     }},
    {"hidden_gain", "hidden layers of Troupe's, and model.initializer other than torch",
     "model.initializer model.torchscript model.critic_torchscript",
     [](const Reader& r) { return r.model.initializer() != v1::INITIALIZER_TORCH && AnyOf(r.networks(), Activates); }},
    {"actor_gain",
     "an actor of Troupe's layers whose outputs are no values of actions, and model.initializer other than torch",
     "algorithm.name model.initializer model.torchscript",
     [](const Reader& r) {
       return r.model.initializer() != v1::INITIALIZER_TORCH && !IsModule(r.model, r.spec().actor) &&
              !r.spec().actor.action_values;
     }},
    {"critic_gain", "a critic of Troupe's layers, and model.initializer other than torch",
     "algorithm.name model.initializer model.critic_torchscript",
     [](const Reader& r) {
       return r.has_critic() && r.model.initializer() != v1::INITIALIZER_TORCH && !IsModule(r.model, r.spec().critic());
     }},
    // Conditions on its algorithm.
    {"adam", "algorithm.optimizer: adam or adamw", "algorithm.optimizer",
     [](const Reader& r) { return r.Optimizes("adam", "adamw"); }},
    {"rmsprop", "algorithm.optimizer: rmsprop", "algorithm.optimizer",
     [](const Reader& r) { return r.Optimizes("rmsprop", "rmsprop"); }},
    {"gae", "algorithm.use_gae: true", "algorithm.use_gae", [](const Reader& r) { return r.Option<bool>("use_gae"); }},
    {"value_clip", "algorithm.use_value_clip: true", "algorithm.use_value_clip",
     [](const Reader& r) { return r.Option<bool>("use_value_clip"); }},
    {"several_epochs", "algorithm.num_epochs above 1", "algorithm.num_epochs",
     [](const Reader& r) { return r.Option<int64_t>("num_epochs") > 1; }},
    {"gradient_clip", "algorithm.max_grad_norm above 0, and a critic that does not share the actor's encoder",
     "algorithm.max_grad_norm model.critic_encoder",
     [](const Reader& r) { return r.Option<double>("max_grad_norm") > 0 && !r.spec().shares_encoder(); }},
    {"lr_kl_target", "algorithm.lr_kl_target above 0", "algorithm.lr_kl_target",
     [](const Reader& r) { return r.Option<double>("lr_kl_target") > 0; }},
    {"kl_loss", "algorithm.use_kl_loss: true", "algorithm.use_kl_loss",
     [](const Reader& r) { return r.Option<bool>("use_kl_loss"); }},
};

constexpr std::string_view kAlways = "always";

const Condition& ConditionOf(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kConditions), std::end(kConditions),
                                         [name](const Condition& condition) { return condition.name == name; });
  TROUPE_CHECK(found != std::end(kConditions));  // KeyEffectsTest looks at every key
  return *found;
}

bool IsOverride(const RunConfig& config, std::string_view key) { return absl::StartsWith(config.Where(key), "--set "); }

/// True if an override set the key, or an entry of it.
bool IsSetByOverride(const RunConfig& config, std::string_view key) {
  if (IsOverride(config, key)) return true;
  const auto& args = config.proto().env().args();
  return key == "env.args" && std::any_of(args.begin(), args.end(), [&config](const v1::Argument& argument) {
           return IsOverride(config, JoinKey("env.args", argument.name()));
         });
}

/// The configuration without written keys: defaults, and the preset's values.
RunConfig Unwritten(const RunConfig& config) {
  const v1::PresetName preset = config.proto().preset();
  const std::string word =
      config.proto().has_preset() ? EnumWord(*v1::PresetName_descriptor()->FindValueByNumber(preset)) : "none";
  const absl::StatusOr<RunConfig> unwritten = RunConfig::FromYaml(
      absl::StrCat("{preset: ", word, ", algorithm: {name: ", AlgorithmWord(config.proto().algorithm().name()), "}}"),
      "defaults");
  TROUPE_CHECK(unwritten.ok());  // the same two met in the configuration
  return *unwritten;
}

/// Goes through what was written. Collects mistakes and warnings.
class EffectCheck {
 public:
  EffectCheck(const ResolvedRun& run, const env::EnvRegistry& registry, FileOf file)
      : config_(run.config), file_(file) {
    for (size_t slot = 0; slot < run.policies.size(); ++slot) {
      settings_.push_back(run.settings[slot]);
      readers_.push_back(Reader{run, registry, slot, ModelOf(run.config, run.settings[slot])});
    }
    agents_ = run.agent_ids();
  }

  absl::StatusOr<std::vector<std::string>> Run() {
    Rules();
    const RunConfig unwritten = Unwritten(config_);
    Section(config_.proto(), unwritten.proto(), "");
    const v1::MultiAgentConfig& multi_agent = config_.proto().multi_agent();
    for (const v1::PolicyConfig& policy : multi_agent.policies()) {
      Overrides(policy, unwritten.proto(), JoinKey("multi_agent.policies", policy.id()));
    }
    for (const v1::AgentConfig& agent : multi_agent.agents()) {
      Overrides(agent, unwritten.proto(), JoinKey("multi_agent.agents", base::LogSafe(agent.agents(), 160)));
    }
    if (!mistake_.ok()) return mistake_;
    return std::move(warnings_);
  }

 private:
  void Note(const std::string& key, const std::string& place_key, const std::string& text,
            std::string_view decided_by) {
    const bool in_override = IsOverride(config_, place_key);
    bool switched_off = false;
    for (const absl::string_view by : absl::StrSplit(absl::string_view(decided_by.data(), decided_by.size()), ' ')) {
      switched_off = switched_off || (!in_override && IsSetByOverride(config_, std::string(by)));
    }
    const std::string message = absl::StrCat(config_.Where(place_key), ": ", base::LogSafe(key, 200), ": ", text);
    if (switched_off || (file_ == FileOf::kRun && !in_override)) {
      warnings_.push_back(message);
    } else {
      mistake_.Update(absl::InvalidArgumentError(message));
    }
  }

  /// Rules and entries that decide nothing.
  void Rules() {
    const v1::MultiAgentConfig& multi_agent = config_.proto().multi_agent();
    std::vector<std::string> globs;
    for (const v1::PolicyMappingRule& rule : multi_agent.policy_mapping().rules()) globs.push_back(rule.agents());
    Globs("multi_agent.policy_mapping", globs);
    globs.clear();
    for (const v1::AgentConfig& agent : multi_agent.agents()) globs.push_back(agent.agents());
    Globs("multi_agent.agents", globs);
  }

  void Globs(const std::string& section, const std::vector<std::string>& globs) {
    for (size_t i = 0; i < globs.size(); ++i) {
      const std::string why = WhyNoAgentMeets(globs, i, agents_);
      if (!why.empty()) Note(JoinKey(section, globs[i]), JoinKey(section, globs[i]), why, "env.name env.args");
    }
  }

  void Section(const Message& section, const Message& unwritten, const std::string& prefix) {
    for (int i = 0; i < section.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *section.GetDescriptor()->field(i);
      const auto part = [&field](const Message& of) -> const Message& {
        return of.GetReflection()->GetMessage(of, &field);
      };
      if (IsOptions(field)) {
        if (section.GetReflection()->HasField(section, &field)) Section(part(section), part(unwritten), prefix);
      } else if (FormOf(field) == KeyForm::kSection) {
        Section(part(section), part(unwritten), JoinKey(prefix, field.name()));
      } else {
        Key(section, unwritten, field, JoinKey(prefix, field.name()));
      }
    }
  }

  template <typename Settings>
  void Overrides(const Settings& of, const v1::RunConfig& unwritten, const std::string& whose) {
    Set(of.model(), unwritten.model(), JoinKey(whose, "model"));
    Set(of.algorithm(), unwritten.algorithm(), JoinKey(whose, "algorithm"));
  }

  /// The keys that an override of a policy or an agent sets.
  void Set(const Message& override, const Message& unwritten, const std::string& prefix) {
    std::vector<const FieldDescriptor*> fields;
    override.GetReflection()->ListFields(override, &fields);
    for (const FieldDescriptor* const field : fields) {
      if (!IsOptions(*field)) {
        Key(override, unwritten, *field, JoinKey(prefix, field->name()));
        continue;
      }
      v1::AlgorithmConfig defaults;
      ApplyDefaults(MutableOptions(*field, &defaults));
      Set(override.GetReflection()->GetMessage(override, field), defaults.GetReflection()->GetMessage(defaults, field),
          prefix);
    }
  }

  /// A key with the value in `section`.
  void Key(const Message& section, const Message& unwritten, const FieldDescriptor& field, const std::string& key) {
    const std::string& counts = RuleOf(field).counts();
    const std::string value = ValueText(section, field);
    if (value == ValueText(unwritten, field)) return;
    // A run's own file has every key, also those whose default was another one when it began.
    if (file_ == FileOf::kRun && field.name() == "use_value_active_masks" && !IsOverride(config_, key)) return;
    std::string place_key = key;
    if (FormOf(field) == KeyForm::kArguments) {  // an override places its entries
      const auto entries = section.GetReflection()->GetRepeatedFieldRef<v1::Argument>(section, &field);
      place_key = JoinKey(key, entries.begin()->name());
    }
    if (config_.Where(place_key) == "default") return;  // the program worked it out
    const bool is_model = section.GetDescriptor() == v1::ModelConfig::descriptor();
    const bool is_option = section.GetDescriptor() != v1::AlgorithmConfig::descriptor() &&
                           absl::StrContains(absl::StrCat(".", key), ".algorithm.");
    const bool of_run = section.GetDescriptor() == v1::RunConfig::descriptor() ||
                        !(is_model || is_option || section.GetDescriptor() == v1::AlgorithmConfig::descriptor()) ||
                        (!is_model && IsImmutable(field.name()));
    const Condition* const condition = counts == kAlways ? nullptr : &ConditionOf(counts);
    std::string own_key;  // of the policy that has a value of its own
    bool is_read = false;
    for (size_t slot = 0; slot < readers_.size(); ++slot) {
      const Reader& reader = readers_[slot];
      if (!of_run) {
        const policy::PolicyClass& kind = reader.spec().policy_class;
        if (is_option ? !kind.trainable() : !kind.has_weights()) continue;
        const std::string in_force = is_model ? ModelKey(config_, settings_[slot], field.name())
                                              : AlgorithmKey(config_, settings_[slot], field.name());
        if (in_force != key) {
          own_key = in_force;
          continue;
        }
      }
      is_read = true;
      if (condition == nullptr || condition->holds(reader)) return;
    }
    const std::string got = field.is_repeated() ? "got entries" : absl::StrCat("got ", value);
    if (is_read) {
      return Note(key, place_key,
                  absl::StrCat(got, ", which has no effect: it needs ", std::string(condition->needs),
                               "; set that, or take this key out"),
                  condition->decided_by);
    }
    Note(key, place_key,
         own_key.empty()
             ? absl::StrCat(got, ", which has no effect: it needs a policy ",
                            is_option ? "of class trained" : "with networks", "; take this key out")
             : absl::StrCat(got, ", which has no effect: every policy that could read it has a value of its own, as ",
                            base::LogSafe(own_key, 200), "; set those, or take this key out"),
         "multi_agent.policies multi_agent.agents");
  }

  const RunConfig& config_;
  const FileOf file_;
  std::vector<SettingsOf> settings_;
  std::vector<Reader> readers_;
  std::vector<std::string> agents_;
  absl::Status mistake_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string_view> ConditionNames() {
  std::vector<std::string_view> names;
  for (const Condition& condition : kConditions) names.push_back(condition.name);
  return names;
}

std::string_view NeedsOf(std::string_view condition) { return ConditionOf(condition).needs; }

absl::StatusOr<std::vector<std::string>> CheckEffects(const ResolvedRun& run, const env::EnvRegistry& registry,
                                                      FileOf file) {
  return base::RefusedIfFinal(EffectCheck(run, registry, file).Run());
}

}  // namespace troupe::config
