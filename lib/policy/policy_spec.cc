#include "lib/policy/policy_spec.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"

namespace troupe::policy {
namespace {

constexpr size_t kMaxHiddenLayers = 8;
constexpr int64_t kMaxLayerSize = 16384;
// Each takes some 100 bytes wherever actions are made, and a text of twenty characters may mean 16 million.
constexpr int64_t kMaxActionNumbers = int64_t{1} << 16;

constexpr std::array<std::pair<Activation, std::string_view>, 7> kActivations = {{
    {Activation::kTanh, "tanh"},
    {Activation::kRelu, "relu"},
    {Activation::kElu, "elu"},
    {Activation::kGelu, "gelu"},
    {Activation::kSigmoid, "sigmoid"},
    {Activation::kSilu, "silu"},
    {Activation::kIdentity, "identity"},
}};

absl::Status ValidateHidden(const PolicyId& id, const char* which, const std::vector<int64_t>& sizes) {
  if (sizes.empty() || sizes.size() > kMaxHiddenLayers) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", id.value(), "\": ", which, " has ", sizes.size(),
                                                   " layers; expected 1 to ", kMaxHiddenLayers));
  }
  for (const int64_t size : sizes) {
    if (size < 1 || size > kMaxLayerSize) {
      return absl::InvalidArgumentError(absl::StrCat("policy \"", id.value(), "\": ", which, " holds a layer of ", size,
                                                     " units; expected 1 to ", kMaxLayerSize));
    }
  }
  return absl::OkStatus();
}

bool IsBounded(const space::ActionLeaf& leaf) {
  for (size_t i = 0; i < leaf.low.size(); ++i) {
    if (!std::isfinite(leaf.low[i]) || !std::isfinite(leaf.high[i])) return false;
  }
  return true;
}

}  // namespace

std::string_view ActivationName(Activation activation) {
  for (const auto& [value, name] : kActivations) {
    if (value == activation) return name;
  }
  return "unknown";
}

absl::StatusOr<Activation> ParseActivation(std::string_view name) {
  for (const auto& [value, known] : kActivations) {
    if (known == name) return value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("activation is \"", absl::string_view(name.data(), name.size()), "\"; expected one of ",
                   absl::StrJoin(kActivations, ", ", [](std::string* out, const auto& entry) {
                     out->append(entry.second.data(), entry.second.size());
                   })));
}

int64_t PolicySpec::critic_input_size() const {
  const int64_t base = critic_input == CriticInput::kObservation ? observation_size() : critic_state_size;
  return base + (critic_agent_id ? agent_id_size : 0);
}

int64_t PolicySpec::actor_output_size() const {
  int64_t size = 0;
  for (const space::ActionLeaf& leaf : space::ActionLeaves(action_space)) {
    size += leaf.kind == space::ActionLeaf::Kind::kCategorical ? leaf.categories : leaf.words;
  }
  return size;
}

int64_t PolicySpec::log_std_size() const {
  int64_t size = 0;
  for (const space::ActionLeaf& leaf : space::ActionLeaves(action_space)) {
    if (leaf.kind == space::ActionLeaf::Kind::kContinuous) size += leaf.words;
  }
  return size;
}

absl::Status PolicySpec::Validate() const {
  TROUPE_RETURN_IF_ERROR(ValidatePolicyId(id.value()));
  const auto error = [this](auto&&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", id.value(), "\": ", parts...));
  };
  if (!observation_space.has_value()) return error("has no observation space");
  if (!action_space.has_value()) return error("has no action space");
  if (action_space.action_words() > kMaxActionNumbers) {
    return error("an action has ", action_space.action_words(), " numbers; expected at most ", kMaxActionNumbers);
  }
  TROUPE_RETURN_IF_ERROR(ValidateHidden(id, "actor_hidden_sizes", model.actor_hidden_sizes));
  TROUPE_RETURN_IF_ERROR(ValidateHidden(id, "critic_hidden_sizes", model.critic_hidden_sizes));
  if (ActivationName(model.activation) == "unknown") return error("has an unknown activation");
  if (agent_id_size < 0) return error("agent_id_size is ", agent_id_size, "; expected at least 0");
  if (critic_agent_id && agent_id_size == 0) return error("critic_agent_id needs agent_id_size above 0");
  if ((critic_input == CriticInput::kObservation) != (critic_state_size == 0)) {
    return error("critic_state_size is ", critic_state_size, ", which does not fit its critic input");
  }
  if (normalize_observations && !policy_class.has_weights()) {
    return error("class ", policy_class.ToString(), " has no observation normalizer");
  }
  if (has_action_mask && action_space.mask_size() == 0) {
    return error("an action mask needs a discrete action; the action space is ", action_space.ToString());
  }
  if (action_bound_method == ActionBoundMethod::kTanh && !action_scaling) {
    return error("action_bound_method: tanh gives [-1, 1] and needs action_scaling: true");
  }
  if (action_scaling) {
    for (const space::ActionLeaf& leaf : space::ActionLeaves(action_space)) {
      if (leaf.kind == space::ActionLeaf::Kind::kContinuous && !IsBounded(leaf)) {
        return error("action_scaling needs a bounded Box; the action space is ", action_space.ToString());
      }
    }
  }
  return absl::OkStatus();
}

std::string PolicySpec::ToString() const {
  // Doubles by "%.17g": two specs are equal exactly when their texts are.
  const auto exact = [](double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.17g", value);
    return std::string(text);
  };
  return absl::StrCat(
      "policy ", id.value(), " obs=", observation_space.ToString(), " act=", action_space.ToString(), " actor=[",
      absl::StrJoin(model.actor_hidden_sizes, ","), "] critic=[", absl::StrJoin(model.critic_hidden_sizes, ","),
      "] activation=", std::string(ActivationName(model.activation)), " gain=", exact(model.actor_output_gain),
      " log_std=", exact(model.initial_log_std), " critic_input=", static_cast<int>(critic_input),
      " critic_state=", critic_state_size, " agent_id=", agent_id_size, " critic_agent_id=", critic_agent_id,
      " normalize=", normalize_observations, " mask=", has_action_mask,
      " bound=", static_cast<int>(action_bound_method), " scaling=", action_scaling,
      // The first class there was; a run from before there were others resumes.
      policy_class.kind == PolicyClass::Kind::kPpo ? "" : absl::StrCat(" class=", policy_class.ToString()));
}

std::string FirstDifference(const PolicySpec& got, const PolicySpec& expected) {
  const auto input = [](CriticInput critic_input) -> std::string {
    switch (critic_input) {
      case CriticInput::kObservation:
        return "the observation";
      case CriticInput::kJointObservation:
        return "all observations";
      case CriticInput::kGlobalState:
        return "the global state";
    }
    return "unknown";
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
        {"model.actor_hidden_sizes", sizes(spec.model.actor_hidden_sizes), "it"},
        {"model.critic_hidden_sizes", sizes(spec.model.critic_hidden_sizes), "it"},
        {"model.activation", std::string(ActivationName(spec.model.activation)), "it"},
        {"the critic's input", input(spec.critic_input), "algorithm.name and algorithm.use_global_state"},
        {"the size of the critic's state", absl::StrCat(spec.critic_state_size), "env"},
        {"the size of the agent's one-hot", absl::StrCat(spec.agent_id_size),
         "algorithm.use_agent_id, and what agents the policy plays,"},
        {"critic_agent_id", truth(spec.critic_agent_id), "algorithm.critic_agent_id"},
        {"normalize_observations", truth(spec.normalize_observations), "algorithm.normalize_observations"},
        {"the use of an action mask", truth(spec.has_action_mask), "algorithm.use_actions_mask"},
        {"action_bound_method", bounds(spec.action_bound_method), "it"},
        {"action_scaling", truth(spec.action_scaling), "it"},
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

void DropNetworks(PolicySpec* spec) {
  spec->model = {};
  spec->critic_input = CriticInput::kObservation;
  spec->critic_state_size = 0;
  spec->agent_id_size = 0;
  spec->critic_agent_id = false;
  spec->normalize_observations = false;
  spec->action_bound_method = ActionBoundMethod::kNone;
  spec->action_scaling = false;
}

std::string ShapeOf(const PolicySpec& spec) {
  PolicySpec shape = spec;
  shape.id = PolicyId("*");
  shape.model.actor_output_gain = 0;
  shape.model.initial_log_std = 0;
  return shape.ToString();
}

absl::Status CheckSwappable(const std::vector<PolicySpec>& specs) {
  const PolicySpec* first = nullptr;
  std::string expected;
  for (const PolicySpec& spec : specs) {
    if (!spec.policy_class.trainable()) continue;
    const std::string shape = ShapeOf(spec);
    if (first == nullptr) {
      first = &spec;
      expected = shape;
    }
    if (shape == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat("policies \"", first->id.value(), "\" and \"", spec.id.value(),
                                                   "\" cannot swap their states: got ", shape, ", expected ",
                                                   expected));
  }
  return absl::OkStatus();
}

}  // namespace troupe::policy
