// How a policy spec is told: the canonical text, which is hashed, and the first difference of two.

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/policy/attention.h"
#include "lib/policy/convolutions.h"
#include "lib/policy/leaf_encoders.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_spec_names.h"

namespace troupe::policy {
namespace {

constexpr char kMlp[] = "mlp";  // the only kind there was when checkpoints and workers began to hash texts

/// True if a canonical text of before there were other networks says all of it: an actor, and a critic of its kind.
bool IsActorAndCritic(const PolicySpec& spec) {
  if (spec.learner_networks.size() != 1 || spec.actor.inputs != DefaultActor().inputs) return false;
  const NetworkSpec& critic = spec.critic();
  return critic.role == kCriticRole && critic.activation == spec.actor.activation && critic.output_gain == 1.0;
}

/// Two specs are equal exactly when their texts are.
std::string Exact(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return std::string(text);
}

}  // namespace

std::string InputsText(const NetworkSpec& network) {
  return absl::StrJoin(network.inputs, "+", [](std::string* out, NetworkInput input) {
    const std::string_view name = NetworkInputName(input);
    out->append(name.data(), name.size());
  });
}

std::string PolicySpec::ToString() const {
  std::string networks;
  for (const NetworkSpec& network : learner_networks) {
    if (IsActorAndCritic(*this)) break;
    absl::StrAppend(&networks, " network=", network.role, ":", InputsText(network), ":[",
                    absl::StrJoin(network.hidden_sizes, ","), "]:", std::string(ActivationName(network.activation)),
                    ":", Exact(network.output_gain));
  }
  std::string kinds;
  const auto add_kind = [&kinds](const NetworkSpec& network) {
    const std::string kind = KindName(network);
    if (kind != kMlp) absl::StrAppend(&kinds, " kind=", network.role, ":", kind);
    if (network.core.remembers()) absl::StrAppend(&kinds, "(", CoreText(network), ")");
  };
  add_kind(actor);
  for (const NetworkSpec& network : learner_networks) add_kind(network);
  if (sequence_length > 0) absl::StrAppend(&kinds, " sequence=", sequence_length);
  const auto add_layers = [&](const NetworkSpec& network) {
    if (network.encoder == EncoderKind::kCnn) absl::StrAppend(&kinds, " conv=", network.role, ":", ConvText(network));
    if (network.encoder == EncoderKind::kLeaves) {
      absl::StrAppend(&kinds, " leaves=", network.role, ":", LeavesText(network));
    }
    if (network.encoder == EncoderKind::kAttention) {
      absl::StrAppend(&kinds, " attention=", network.role, ":", AttentionText(network));
    }
    if (network.encoder == EncoderKind::kTorchScript) {
      absl::StrAppend(&kinds, " module=", network.role, ":", CanonicalModuleText(network.module));
    }
    if (network.encoder == EncoderKind::kShared) {
      absl::StrAppend(&kinds, " head=", network.role, ":[", absl::StrJoin(network.head_hidden_sizes, ","), "]");
    }
    if (network.layer_norm) absl::StrAppend(&kinds, " layer_norm=", network.role);
    if (network.action_values) absl::StrAppend(&kinds, " action_values=", network.role);
    if (network.has_target) absl::StrAppend(&kinds, " target=", network.role);
    if (network.initializer != Initializer::kOrthogonal) {
      absl::StrAppend(&kinds, " initializer=", network.role, ":", NameOf(kInitializerNames, network.initializer));
    }
    if (network.hidden_gain != 0) {
      absl::StrAppend(&kinds, " hidden_gain=", network.role, ":", Exact(network.hidden_gain));
    }
  };
  add_layers(actor);
  for (const NetworkSpec& network : learner_networks) add_layers(network);
  if (continuous != ContinuousDistribution::kGaussian) {
    absl::StrAppend(&kinds, " continuous=", NameOf(kContinuousDistributionNames, continuous));
  }
  if (!free_log_std) absl::StrAppend(&kinds, " log_std=predicted");
  if (min_log_std != kMinLogStd || max_log_std != kMaxLogStd) {
    absl::StrAppend(&kinds, " log_std_in=[", Exact(min_log_std), ",", Exact(max_log_std), "]");
  }
  for (const LearnerNumber& number : learner_numbers) absl::StrAppend(&kinds, " number=", number.name);
  if (joint_action_size > 0) absl::StrAppend(&kinds, " joint_action=", joint_action_size);
  if (normalize_state) absl::StrAppend(&kinds, " normalize_state=1");
  if (critic_reads_agent_state()) absl::StrAppend(&kinds, " agent_state=1");
  if (!bytes_by_255 && bytes_have_bounds()) absl::StrAppend(&kinds, " bytes=bounds");
  if (reward_discount != 1) absl::StrAppend(&kinds, " reward_discount=", Exact(reward_discount));
  return absl::StrCat(
      "policy ", id.value(), " obs=", observation_space.ToString(), " act=", action_space.ToString(), " actor=[",
      absl::StrJoin(actor.hidden_sizes, ","), "] critic=[", absl::StrJoin(critic().hidden_sizes, ","),
      "] activation=", std::string(ActivationName(actor.activation)), " gain=", Exact(actor.output_gain),
      " log_std=", Exact(initial_log_std), " critic_input=", static_cast<int>(critic_input()),
      " critic_state=", critic_state_size(), " agent_id=", agent_id_size, " critic_agent_id=", critic_agent_id(),
      " normalize=", normalize_observations, " mask=", has_action_mask,
      " bound=", static_cast<int>(action_bound_method), " scaling=", action_scaling,
      // The first class there was; a run from before there were others resumes.
      policy_class.kind == PolicyClass::Kind::kTrained ? "" : absl::StrCat(" class=", policy_class.ToString()),
      networks, kinds);
}

std::string FirstDifference(const PolicySpec& got, const PolicySpec& expected) {
  const auto input = [](const PolicySpec& spec) -> std::string {
    if (spec.critic_reads_agent_state()) return "the global state and the observation";
    if (spec.critic_input() == NetworkInput::kJointObservation) return "all observations";
    return spec.critic_input() == NetworkInput::kState ? "the global state" : "the observation";
  };
  const auto bounds = [](ActionBoundMethod method) -> std::string {
    switch (method) {
      case ActionBoundMethod::kNone:
        return "none";
      case ActionBoundMethod::kClip:
        return "clip";
      case ActionBoundMethod::kTanh:
        return "tanh";
    }
    return "unknown";
  };
  const auto sizes = [](const std::vector<int64_t>& hidden) {
    return absl::StrCat("[", absl::StrJoin(hidden, ", "), "]");
  };
  const auto truth = [](bool value) -> std::string { return value ? "true" : "false"; };
  struct Part {
    const char* name;
    std::string value;
    const char* keys;  ///< of a configuration, that decide it
  };
  const auto parts = [&](const PolicySpec& spec) {
    return std::vector<Part>{
        {"the observation space", spec.observation_space.ToString(), "env"},
        {"the action space", spec.action_space.ToString(), "env"},
        {"the actor's kind of network", KindName(spec.actor), "model"},
        {"the critic's kind of network", KindName(spec.critic()), "model"},
        {"the actor's TorchScript module", ModuleText(spec.actor.module), "model.torchscript"},
        {"the critic's TorchScript module", ModuleText(spec.critic().module), "model.critic_torchscript"},
        {"model.actor_hidden_sizes", sizes(spec.actor.hidden_sizes), "it"},
        {"model.critic_hidden_sizes", sizes(spec.critic().hidden_sizes), "it"},
        {"the actor's convolutions", ConvText(spec.actor), "model"},
        {"the critic's convolutions", ConvText(spec.critic()), "model"},
        {"the actor's encoders of leaves", LeavesText(spec.actor), "model"},
        {"the critic's encoders of leaves", LeavesText(spec.critic()), "model"},
        {"the critic's attention", AttentionText(spec.critic()), "model.attention_size, attention_heads and env"},
        {"the actor's layer normalization", truth(spec.actor.layer_norm), "model.layer_norm"},
        {"the critic's layer normalization", truth(spec.critic().layer_norm), "model.layer_norm"},
        {"the actor's output", spec.actor.action_values ? "values of actions" : "a distribution", "algorithm.name"},
        {"the actor's core", CoreText(spec.actor), "model"},
        {"the critic's core", CoreText(spec.critic()), "model"},
        {"model.critic_head_hidden_sizes", sizes(spec.critic().head_hidden_sizes), "it"},
        {"model.max_seq_len", absl::StrCat(spec.sequence_length), "it"},
        {"model.activation", std::string(ActivationName(spec.actor.activation)), "it"},
        {"the critic's activation", std::string(ActivationName(spec.critic().activation)), "model"},
        {"the distribution of continuous actions", NameOf(kContinuousDistributionNames, spec.continuous), "model"},
        {"model.free_log_std", truth(spec.free_log_std), "it"},
        {"model.min_log_std", Exact(spec.min_log_std), "it"},
        {"model.max_log_std", Exact(spec.max_log_std), "it"},
        {"the critic's input", input(spec),
         spec.Reads(NetworkInput::kState) && got.Reads(NetworkInput::kState) && expected.Reads(NetworkInput::kState)
             ? "algorithm.use_agent_specific_state"
             : "algorithm.name and algorithm.use_global_state"},
        {"the size of the critic's state", absl::StrCat(spec.critic_state_size()), "env"},
        {"the size of the agent's one-hot", absl::StrCat(spec.agent_id_size),
         "algorithm.use_agent_id, and what agents the policy plays,"},
        {"critic_agent_id", truth(spec.critic_agent_id()), "algorithm.critic_agent_id"},
        {"the scaling of bytes", !spec.bytes_have_bounds() ? "none" : (spec.bytes_by_255 ? "by_255" : "by_space"),
         "model.scaling"},
        {"normalize_observations", truth(spec.normalize_observations), "algorithm.normalize_observations"},
        {"normalize_state", truth(spec.normalize_state), "algorithm.normalize_state"},
        {"the use of an action mask", truth(spec.has_action_mask), "algorithm.use_actions_mask"},
        {"action_bound_method", bounds(spec.action_bound_method), "it"},
        {"action_scaling", truth(spec.action_scaling), "it, or model.scaling,"},
    };
  };
  const auto ours = parts(got);
  const auto theirs = parts(expected);
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].value == theirs[i].value) continue;
    return absl::StrCat(ours[i].name, " is ", ours[i].value, ", expected ", theirs[i].value, "; set ", ours[i].keys,
                        " alike");
  }
  return "";
}

}  // namespace troupe::policy
