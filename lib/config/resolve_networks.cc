#include "lib/config/resolve_networks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/attention_critic.h"
#include "lib/config/image_networks.h"
#include "lib/config/overrides.h"
#include "lib/config/resolve_distribution.h"
#include "lib/config/schema.h"
#include "lib/config/shared_encoder.h"
#include "lib/config/torch_modules.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/space/observation_leaves.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

using policy::PolicySpec;

// The schema's enums have our values, so that they are cast; v1's UNSPECIFIED never gets past the loader.
static_assert(static_cast<int>(policy::Activation::kIdentity) == v1::ACTIVATION_IDENTITY);
static_assert(static_cast<int>(policy::Activation::kTanh) == v1::ACTIVATION_TANH);
static_assert(static_cast<int>(policy::Initializer::kOrthogonal) == v1::INITIALIZER_ORTHOGONAL);
static_assert(static_cast<int>(policy::Initializer::kXavier) == v1::INITIALIZER_XAVIER);
static_assert(static_cast<int>(policy::Initializer::kTorch) == v1::INITIALIZER_TORCH);
static_assert(static_cast<int>(policy::CoreKind::kNone) == v1::CORE_KIND_NONE);
static_assert(static_cast<int>(policy::CoreKind::kGru) == v1::CORE_KIND_GRU);
static_assert(static_cast<int>(policy::CoreKind::kLstm) == v1::CORE_KIND_LSTM);

policy::Activation ToActivation(v1::Activation activation) { return static_cast<policy::Activation>(activation); }

void SetSizes(const v1::IntegerList& list, std::vector<int64_t>* sizes) {
  sizes->assign(list.values().begin(), list.values().end());
}

/// Layers that a network has only with a core, or lacks without one. The schema has the sizes' bounds.
absl::Status CheckLayers(const RunConfig& config, const SettingsOf& of, const policy::NetworkSpec& network) {
  const bool has_head = network.core.remembers() || network.encoder == policy::EncoderKind::kShared;
  if (has_head || IsModule(ModelOf(config, of), network)) return absl::OkStatus();
  const std::string core = absl::StrCat("model.", network.role, "_core: gru or lstm");
  if (!network.head_hidden_sizes.empty()) {
    return config.KeyError(ModelKey(config, of, network.role + "_head_hidden_sizes"),
                           absl::StrCat("got [", absl::StrJoin(network.head_hidden_sizes, ", "), "], but the ",
                                        network.role, " of policy \"", of.policy.value(),
                                        "\" has no core that they could stand behind; expected [], or ", core));
  }
  if (!network.hidden_sizes.empty() || network.encoder != policy::EncoderKind::kMlp) return absl::OkStatus();
  return config.KeyError(ModelKey(config, of, network.role + "_hidden_sizes"),
                         absl::StrCat("got [], but the ", network.role, " of policy \"", of.policy.value(),
                                      "\" has no core that could read its inputs; expected 1 to 8 layers, or ", core));
}

/// Elements of the joint observation: every agent's, then a presence bit each.
int64_t JointObservationSize(const env::EnvSpec& env) {
  int64_t size = env.num_agents();
  for (const env::AgentSpec& agent : env.possible_agents) size += agent.observation_space.flat_size();
  return size;
}

/// `key`, which is true, is of centralized critics; the algorithm has none.
absl::Status NoCentralizedCritic(const RunConfig& config, const SettingsOf& of, v1::AlgorithmName name,
                                 const std::string& key) {
  const std::vector<std::string> names = CentralizedNamesOf(OptionsOf(name));
  if (names.empty()) {
    return config.KeyError(AlgorithmKey(config, of, key), absl::StrCat("got true, but ", AlgorithmWord(name),
                                                                       " has no centralized critic; expected false"));
  }
  return config.KeyError(
      AlgorithmKey(config, of, key),
      absl::StrCat("got true, but the critic of ", AlgorithmWord(name),
                   " sees its agent's own observation; expected algorithm.name: ", absl::StrJoin(names, " or ")));
}

absl::Status SetCriticInput(const RunConfig& config, const env::EnvSpec& env, const SettingsOf& of, PolicySpec* spec) {
  const v1::AlgorithmConfig algorithm = AlgorithmOf(config, of);
  const bool centralized = HasCentralizedCritic(algorithm.name());
  if (algorithm.normalize_state() && !centralized) {
    return NoCentralizedCritic(config, of, algorithm.name(), "normalize_state");
  }
  spec->normalize_state = algorithm.normalize_state();
  if (algorithm.use_agent_specific_state() && !algorithm.use_global_state()) {
    return config.KeyError(AlgorithmKey(config, of, "use_agent_specific_state"),
                           "got true, but use_global_state is false: there is no state that the agent's observation "
                           "could stand behind; expected use_global_state: true");
  }
  if (algorithm.use_global_state()) {
    if (!centralized) return NoCentralizedCritic(config, of, algorithm.name(), "use_global_state");
    if (env.state_kind == env::StateKind::kNone) {
      return config.KeyError(AlgorithmKey(config, of, "use_global_state"),
                             absl::StrCat("got true, but ", env.name,
                                          " has no global state; expected false (the critic sees all observations)"));
    }
    spec->SetCriticInput(policy::NetworkInput::kState, env.state_space.flat_size());
    if (algorithm.use_agent_specific_state()) spec->SetCriticReadsAgentState(true);
  } else if (centralized) {
    spec->SetCriticInput(policy::NetworkInput::kJointObservation, JointObservationSize(env));
  }
  return absl::OkStatus();
}

/// True for what continuous control observes: positions and speeds of any size.
bool NeedsNormalizer(const PolicySpec& spec) {
  const std::vector<space::ObservationLeaf> leaves = space::ObservationLeaves(spec.observation_space);
  return spec.HasContinuousActions() && space::HasUnboundedNumbers(spec.observation_space) &&
         std::none_of(leaves.begin(), leaves.end(),
                      [](const space::ObservationLeaf& leaf) { return LooksLikeImage(leaf.space); });
}

}  // namespace

void SetModel(const v1::ModelConfig& model, bool layer_norm, PolicySpec* spec) {
  const auto core = [&model](v1::CoreKind kind) {
    return kind == v1::CORE_KIND_NONE ? policy::CoreSpec{}
                                      : policy::CoreSpec{.kind = static_cast<policy::CoreKind>(kind),
                                                         .size = model.core_size(),
                                                         .layers = model.core_layers()};
  };
  policy::NetworkSpec* const critic = spec->mutable_critic();
  SetSizes(model.actor_hidden_sizes(), &spec->actor.hidden_sizes);
  SetSizes(model.critic_hidden_sizes(), &critic->hidden_sizes);
  spec->actor.core = core(model.actor_core());
  critic->core = core(model.critic_core());
  SetSizes(model.actor_head_hidden_sizes(), &spec->actor.head_hidden_sizes);
  SetSizes(model.critic_head_hidden_sizes(), &critic->head_hidden_sizes);
  spec->SetActivation(ToActivation(model.activation()));
  if (model.has_actor_activation()) spec->actor.activation = ToActivation(model.actor_activation());
  if (model.has_critic_activation()) critic->activation = ToActivation(model.critic_activation());
  for (policy::NetworkSpec* const network : {&spec->actor, critic}) {
    network->layer_norm = model.has_layer_norm() ? model.layer_norm() : layer_norm;
    network->initializer = static_cast<policy::Initializer>(model.initializer());
    network->hidden_gain = model.has_hidden_gain() ? model.hidden_gain() : 0;
  }
  spec->actor.output_gain = model.actor_output_gain();
  critic->output_gain = model.critic_output_gain();
  spec->initial_log_std = model.initial_log_std();
}

absl::Status FillNetworks(const RunConfig& config, const env::EnvSpec& env, const SettingsOf& of, PolicySpec* spec) {
  TROUPE_RETURN_IF_ERROR(SetCriticInput(config, env, of, spec));
  TROUPE_RETURN_IF_ERROR(SetEncoders(config, env, of, spec));
  TROUPE_RETURN_IF_ERROR(SetAttention(config, env, of, spec));
  TROUPE_RETURN_IF_ERROR(ShareEncoder(config, of, spec));
  TROUPE_RETURN_IF_ERROR(CheckLayers(config, of, spec->actor));
  TROUPE_RETURN_IF_ERROR(CheckLayers(config, of, spec->critic()));
  spec->bytes_by_255 = ModelOf(config, of).scaling() == v1::SCALING_RULE_BY_255 && spec->bytes_have_bounds();
  const v1::AlgorithmConfig algorithm = AlgorithmOf(config, of);
  spec->normalize_observations =
      algorithm.has_normalize_observations() ? algorithm.normalize_observations() : NeedsNormalizer(*spec);
  TROUPE_RETURN_IF_ERROR(SetDistribution(config, of, ModelOf(config, of), spec));
  TROUPE_RETURN_IF_ERROR(SetModules(config, of, spec));
  if (spec->remembers()) spec->sequence_length = ModelOf(config, of).max_seq_len();
  if (const absl::Status status = spec->Validate(); !status.ok()) {
    const bool says_scaling = config.proto().has_action_scaling() && spec->action_scaling;
    const std::string key = says_scaling ? "action_scaling" : "action_bound_method";
    return config.KeyError(key, std::string(status.message()));
  }
  return absl::OkStatus();
}

absl::Status FillWithoutNetworks(const RunConfig& config, const SettingsOf& of, PolicySpec* spec) {
  const std::string key = JoinKey("multi_agent.policies", spec->id.value());
  const auto no_networks = [&](const std::string& at) {
    return config.KeyError(at, absl::StrCat("got overrides, but class ", base::LogSafe(spec->policy_class.ToString()),
                                            " has no networks"));
  };
  const v1::PolicyConfig& policy = *FindPolicyConfig(config, spec->id);
  if (policy.has_model()) return no_networks(JoinKey(key, "model"));
  if (policy.has_algorithm()) return no_networks(JoinKey(key, "algorithm"));
  if (!of.own_agent.empty()) return no_networks("multi_agent.agents");
  policy::DropNetworks(spec);
  if (const absl::Status plays = inference::CheckWithoutWeights(*spec); !plays.ok()) {
    return config.KeyError(JoinKey(key, "class"), std::string(plays.message()));
  }
  return absl::OkStatus();
}

}  // namespace troupe::config
