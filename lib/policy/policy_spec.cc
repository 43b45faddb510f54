#include "lib/policy/policy_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/attention.h"
#include "lib/policy/convolutions.h"
#include "lib/policy/leaf_encoders.h"
#include "lib/policy/policy_spec_names.h"

namespace troupe::policy {
namespace {

constexpr size_t kMaxRoleBytes = 32;
constexpr size_t kMaxLearnerNetworks = 8;
constexpr int64_t kMaxCoreLayers = 4;
constexpr int64_t kMaxCoreSize = 4096;
constexpr int64_t kMaxSequenceLength = 65536;
constexpr double kMaxLogDeviation = 20.0;  // either way
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

constexpr std::array<std::pair<NetworkInput, std::string_view>, 6> kInputs = {{
    {NetworkInput::kObservation, "observation"},
    {NetworkInput::kJointObservation, "joint_observation"},
    {NetworkInput::kState, "state"},
    {NetworkInput::kAgentId, "agent_id"},
    {NetworkInput::kJointAction, "joint_action"},
    {NetworkInput::kAction, "action"},
}};

absl::Status ValidateNetwork(const PolicySpec& spec, const NetworkSpec& network) {
  const PolicyId& id = spec.id;
  const auto error = [&](auto&&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", id.value(), "\": ", base::LogSafe(network.role, 32), parts...));
  };
  const auto check_sizes = [&](const char* key, const std::vector<int64_t>& sizes, size_t fewest, size_t most) {
    if (sizes.size() < fewest || sizes.size() > most) {
      return error(key, " has ", sizes.size(), " layers; expected ", fewest, " to ", most);
    }
    for (const int64_t size : sizes) {
      if (size < 1 || size > kMaxLayerSize) {
        return error(key, " holds a layer of ", size, " units; expected 1 to ", kMaxLayerSize);
      }
    }
    return absl::OkStatus();
  };
  const CoreSpec& core = network.core;
  const bool remembers = core.remembers();
  const bool shares = network.encoder == EncoderKind::kShared;
  TROUPE_RETURN_IF_ERROR(check_sizes("_hidden_sizes", network.hidden_sizes,
                                     remembers || network.encoder != EncoderKind::kMlp ? 0 : 1,
                                     shares ? 0 : kMaxHiddenLayers));
  TROUPE_RETURN_IF_ERROR(
      check_sizes("_head_hidden_sizes", network.head_hidden_sizes, 0, remembers || shares ? kMaxHiddenLayers : 0));
  if (ActivationName(network.activation) == "unknown") return error(" has an unknown activation");
  if (NameOf(kEncoderNames, network.encoder) == "unknown") return error(" has an unknown encoder");
  if (NameOf(kCoreNames, core.kind) == "unknown") return error(" has an unknown core");
  if (NameOf(kInitializerNames, network.initializer) == "unknown") return error(" has an unknown initializer");
  if (network.action_values && (spec.action_space.mask_size() == 0 || spec.HasContinuousActions())) {
    return error(" gives values of actions, and the action space is ", spec.action_space.ToString(),
                 "; expected a discrete one");
  }
  if (network.encoder == EncoderKind::kTorchScript && network.reads_actions()) {
    return error(" is a TorchScript module and reads actions; expected one that reads none");
  }
  if (network.has_target && std::any_of(network.module.tensors.begin(), network.module.tensors.end(),
                                        [](const ModuleTensor& tensor) { return tensor.is_buffer; })) {
    return error(" is a TorchScript module with buffers and has a target; expected one without");
  }
  TROUPE_RETURN_IF_ERROR(ValidateConvolutions(spec, network));
  TROUPE_RETURN_IF_ERROR(ValidateAttention(id, network, spec.joint_observation_size));
  if (!remembers && core != CoreSpec()) {
    return error(" has no core, but core layers: ", core.layers, " of ", core.size, " units; expected 0 of 0");
  }
  if (remembers && (core.size < 1 || core.size > kMaxCoreSize || core.layers < 1 || core.layers > kMaxCoreLayers)) {
    return error(" has a core of ", core.layers, " layers of ", core.size, " units; expected 1 to ", kMaxCoreLayers,
                 " of 1 to ", kMaxCoreSize);
  }
  if (!std::isfinite(network.output_gain)) return error(" has an output gain that is not finite");
  if (!(network.hidden_gain >= 0) || !std::isfinite(network.hidden_gain)) {
    return error(" has a gain of hidden layers of ", network.hidden_gain, "; expected 0 (by activation) or above");
  }
  return absl::OkStatus();
}

/// Of a critic with the actor's encoder: there is one, it reads the same, and the critic has none of its own.
absl::Status ValidateShared(const PolicySpec& spec, const NetworkSpec& network) {
  if (network.encoder != EncoderKind::kShared) return absl::OkStatus();
  const auto error = [&](auto&&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", spec.id.value(), "\": the ", network.role, " shares the actor's encoder", parts...));
  };
  if (network.role == kActorRole) return error(", but is the actor; expected an encoder of its own");
  if (spec.actor.encoder == EncoderKind::kTorchScript) {
    return error(", but the actor is a TorchScript module; expected one with an encoder");
  }
  if (network.core.remembers()) return error(" and has a core; expected none beside the actor's");
  // An id that no slot stands in is no input.
  const bool same_id = spec.agent_id_size == 0 || network.Reads(NetworkInput::kAgentId);
  if (network.inputs.empty() || network.inputs[0] != NetworkInput::kObservation || !same_id) {
    return error(" and reads ", network.inputs.empty() ? "nothing" : InputsText(network), "; expected ",
                 spec.agent_id_size == 0 ? "observation" : InputsText(spec.actor), ", as the actor");
  }
  return absl::OkStatus();
}

/// A learner network's inputs: the observation, the joint observation or the state, of a state perhaps the agent's
/// observation, then perhaps its slot, then perhaps actions.
absl::Status ValidateLearnerInputs(const PolicySpec& spec, const NetworkSpec& network) {
  const auto error = [&](auto&&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\": the ", network.role, parts...));
  };
  std::vector<NetworkInput> rest = network.inputs;
  if (network.reads_actions()) rest.pop_back();
  const NetworkInput first = rest.empty() ? NetworkInput::kAgentId : rest[0];
  const bool has_id = rest.size() > 1 && rest.back() == NetworkInput::kAgentId;
  const bool observes = first == NetworkInput::kState && rest.size() > 1 && rest[1] == NetworkInput::kObservation;
  const bool known =
      first == NetworkInput::kObservation || first == NetworkInput::kJointObservation || first == NetworkInput::kState;
  if (!known || rest.size() != size_t{1} + (observes ? 1 : 0) + (has_id ? 1 : 0)) {
    return error(" reads ", network.inputs.empty() ? "nothing" : InputsText(network),
                 "; expected observation, joint_observation, state or state and observation, then perhaps agent_id, "
                 "then perhaps action or joint_action");
  }
  if (has_id && spec.agent_id_size == 0) return error(" reads agent_id, which needs agent_id_size above 0");
  std::vector<NetworkInput> of_all = spec.critic().inputs;
  if (spec.critic().reads_actions()) of_all.pop_back();
  if (rest != of_all) {
    return error(" reads ", InputsText(network), " and the ", spec.critic().role, " ", InputsText(spec.critic()),
                 "; expected the same but for actions");
  }
  return absl::OkStatus();
}

bool IsRole(std::string_view name) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() <= kMaxRoleBytes && std::all_of(name.begin(), name.end(), fits);
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

std::string_view NetworkInputName(NetworkInput input) {
  for (const auto& [value, name] : kInputs) {
    if (value == input) return name;
  }
  return "unknown";
}

absl::StatusOr<NetworkInput> ParseNetworkInput(std::string_view name) {
  for (const auto& [value, known] : kInputs) {
    if (known == name) return value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("got the network input \"", base::LogSafe(name, 64), "\", which is unknown"));
}

std::string KindName(const NetworkSpec& network) {
  const std::string encoder = NameOf(kEncoderNames, network.encoder);
  return network.core.remembers() ? absl::StrCat(encoder, "+", NameOf(kCoreNames, network.core.kind)) : encoder;
}

std::string CoreText(const NetworkSpec& network) {
  const CoreSpec& core = network.core;
  if (!core.remembers()) return NameOf(kCoreNames, core.kind);
  return absl::StrCat(NameOf(kCoreNames, core.kind), " of ", core.layers, " x ", core.size, ", then [",
                      absl::StrJoin(network.head_hidden_sizes, ", "), "]");
}

absl::Status CheckEncoderIsMlp(std::string_view who, const NetworkSpec& network) {
  if (network.encoder == EncoderKind::kMlp) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(std::string(who), " computes encoders of kind mlp, got ",
                                               NameOf(kEncoderNames, network.encoder), " for the ",
                                               base::LogSafe(network.role, 32)));
}

bool NetworkSpec::Reads(NetworkInput input) const {
  return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
}

NetworkSpec DefaultActor() {
  NetworkSpec actor;
  actor.role = kActorRole;
  actor.inputs = {NetworkInput::kObservation, NetworkInput::kAgentId};
  actor.output_gain = 0.01;
  return actor;
}

NetworkSpec DefaultCritic() {
  NetworkSpec critic;
  critic.role = kCriticRole;
  return critic;
}

int64_t PolicySpec::InputSize(const NetworkSpec& network) const {
  int64_t size = 0;
  for (const NetworkInput input : network.inputs) {
    switch (input) {
      case NetworkInput::kObservation:
        size += observation_size();
        break;
      case NetworkInput::kJointObservation:
        size += joint_observation_size;
        break;
      case NetworkInput::kState:
        size += state_size;
        break;
      case NetworkInput::kAgentId:
        size += agent_id_size;
        break;
      case NetworkInput::kJointAction:
        size += joint_action_size;
        break;
      case NetworkInput::kAction:
        size += action_size();
        break;
    }
  }
  return size;
}

int64_t PolicySpec::ActionInputSize(const NetworkSpec& network) const {
  return (network.Reads(NetworkInput::kAction) ? action_size() : 0) +
         (network.Reads(NetworkInput::kJointAction) ? joint_action_size : 0);
}

int64_t PolicySpec::OutputSize(const NetworkSpec& network) const {
  return network.role == kActorRole || network.action_values ? actor_output_size() : 1;
}

int64_t PolicySpec::action_size() const {
  int64_t size = 0;
  for (const space::ActionLeaf& leaf : space::ActionLeaves(action_space)) {
    size += leaf.kind == space::ActionLeaf::Kind::kCategorical ? leaf.categories : leaf.words;
  }
  return size;
}

bool PolicySpec::Reads(NetworkInput input) const {
  return actor.Reads(input) || std::any_of(learner_networks.begin(), learner_networks.end(),
                                           [input](const NetworkSpec& network) { return network.Reads(input); });
}

bool PolicySpec::remembers() const {
  return actor.remembers() || std::any_of(learner_networks.begin(), learner_networks.end(),
                                          [](const NetworkSpec& network) { return network.remembers(); });
}

const NetworkSpec* PolicySpec::FindLearnerNetwork(std::string_view role) const {
  for (const NetworkSpec& network : learner_networks) {
    if (network.role == role) return &network;
  }
  return nullptr;
}

const NetworkSpec& PolicySpec::critic() const {
  static const NetworkSpec* const kNone = [] {
    auto* none = new NetworkSpec;
    none->inputs.clear();
    none->hidden_sizes.clear();
    return none;
  }();
  if (const NetworkSpec* const found = FindLearnerNetwork(kCriticRole)) return *found;
  return learner_networks.empty() ? *kNone : learner_networks.front();
}

NetworkSpec* PolicySpec::mutable_critic() {
  for (NetworkSpec& network : learner_networks) {
    if (network.role == kCriticRole) return &network;
  }
  return &learner_networks.emplace_back(DefaultCritic());
}

NetworkInput PolicySpec::critic_input() const {
  for (const NetworkInput input : {NetworkInput::kJointObservation, NetworkInput::kState}) {
    if (critic().Reads(input)) return input;
  }
  return NetworkInput::kObservation;
}

int64_t PolicySpec::critic_state_size() const {
  switch (critic_input()) {
    case NetworkInput::kJointObservation:
      return joint_observation_size;
    case NetworkInput::kState:
      return state_size;
    default:
      return 0;
  }
}

void PolicySpec::SetCriticInput(NetworkInput input, int64_t size) {
  const bool reads_id = critic_agent_id();
  mutable_critic()->inputs = {input};
  SetCriticAgentId(reads_id);
  joint_observation_size = input == NetworkInput::kJointObservation ? size : 0;
  state_size = input == NetworkInput::kState ? size : 0;
}

void PolicySpec::SetCriticAgentId(bool reads) {
  std::vector<NetworkInput>& inputs = mutable_critic()->inputs;
  inputs.erase(std::remove(inputs.begin(), inputs.end(), NetworkInput::kAgentId), inputs.end());
  if (reads) inputs.push_back(NetworkInput::kAgentId);
}

void PolicySpec::SetCriticReadsAgentState(bool reads) {
  std::vector<NetworkInput>& inputs = mutable_critic()->inputs;
  inputs.erase(std::remove(inputs.begin(), inputs.end(), NetworkInput::kObservation), inputs.end());
  if (reads) inputs.insert(inputs.begin() + 1, NetworkInput::kObservation);
}

void PolicySpec::SetActivation(Activation activation) {
  actor.activation = activation;
  for (NetworkSpec& network : learner_networks) network.activation = activation;
}

bool PolicySpec::bytes_have_bounds() const {
  if (!policy_class.has_weights() || !space::HasBytes(observation_space)) return false;
  if (observation_space.kind() != space::SpaceKind::kBox) return true;
  return space::ScalingByBounds(observation_space) != space::ScalingBy255(observation_space);
}

bool PolicySpec::HasContinuousActions() const {
  const std::vector<space::ActionLeaf> leaves = space::ActionLeaves(action_space);
  return std::any_of(leaves.begin(), leaves.end(),
                     [](const space::ActionLeaf& leaf) { return leaf.kind == space::ActionLeaf::Kind::kContinuous; });
}

bool PolicySpec::HasBoundedActions() const {
  const std::vector<space::ActionLeaf> leaves = space::ActionLeaves(action_space);
  return std::all_of(leaves.begin(), leaves.end(), IsBounded);
}

int64_t PolicySpec::OutputsOf(const space::ActionLeaf& leaf) const {
  if (leaf.kind == space::ActionLeaf::Kind::kCategorical) return leaf.categories;
  const bool two = continuous == ContinuousDistribution::kBeta || !free_log_std;
  return two ? 2 * leaf.words : leaf.words;
}

int64_t PolicySpec::actor_output_size() const {
  int64_t size = 0;
  for (const space::ActionLeaf& leaf : space::ActionLeaves(action_space)) size += OutputsOf(leaf);
  return size;
}

int64_t PolicySpec::log_std_size() const {
  if (continuous == ContinuousDistribution::kBeta || !free_log_std) return 0;
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
  if (agent_id_size < 0) return error("agent_id_size is ", agent_id_size, "; expected at least 0");
  TROUPE_RETURN_IF_ERROR(ValidateNetworks());
  if (normalize_observations && !policy_class.has_weights()) {
    return error("class ", policy_class.ToString(), " has no observation normalizer");
  }
  if (normalize_state && (!policy_class.has_weights() || critic_state_size() == 0)) {
    return error("normalize_state: true is of a critic that reads all observations or the global state; ",
                 policy_class.has_weights() ? "this one reads its agent's observation alone"
                                            : absl::StrCat("class ", policy_class.ToString(), " has none"));
  }
  if (has_action_mask && action_space.mask_size() == 0) {
    return error("an action mask needs a discrete action; the action space is ", action_space.ToString());
  }
  TROUPE_RETURN_IF_ERROR(ValidateDistribution());
  if (!(reward_discount >= 0 && reward_discount <= 1)) {
    return error("reward_discount is ", reward_discount, "; expected a number in [0, 1]");
  }
  if (action_bound_method == ActionBoundMethod::kTanh && !action_scaling) {
    return error("action_bound_method: tanh gives [-1, 1] and needs action_scaling: true");
  }
  if (action_scaling && !HasBoundedActions()) {
    return error("action_scaling needs a bounded Box; the action space is ", action_space.ToString());
  }
  return absl::OkStatus();
}

absl::Status PolicySpec::ValidateDistribution() const {
  const auto error = [this](auto&&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", id.value(), "\": ", parts...));
  };
  const std::string name = NameOf(kContinuousDistributionNames, continuous);
  if (name == "unknown") return error("has an unknown distribution of continuous actions");
  if (!(min_log_std >= -kMaxLogDeviation && min_log_std <= max_log_std && max_log_std <= kMaxLogDeviation)) {
    return error("log standard deviations are in [", min_log_std, ", ", max_log_std, "]; expected an interval within [",
                 -kMaxLogDeviation, ", ", kMaxLogDeviation, "]");
  }
  const bool deviates = continuous != ContinuousDistribution::kBeta && HasContinuousActions();
  if (deviates && !(initial_log_std >= min_log_std && initial_log_std <= max_log_std)) {
    return error("initial_log_std is ", initial_log_std, "; expected a number in [", min_log_std, ", ", max_log_std,
                 "], beyond which it would never be trained");
  }
  if (continuous == ContinuousDistribution::kGaussian) return absl::OkStatus();
  if (!HasContinuousActions()) {
    return error("distribution ", name, " needs a continuous action; the action space is ", action_space.ToString());
  }
  if (!action_scaling) {
    return error("actions of distribution ", name, " are in [-1, 1] and need action_scaling: true");
  }
  const bool squashed = continuous == ContinuousDistribution::kSquashedGaussian;
  if (squashed != (action_bound_method == ActionBoundMethod::kTanh)) {
    return error("distribution ", name,
                 squashed ? " is bounded by tanh; expected action_bound_method: tanh"
                          : " is bounded as it is; expected action_bound_method: none or clip");
  }
  return absl::OkStatus();
}

absl::Status PolicySpec::ValidateNetworks() const {
  const auto error = [this](auto&&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", id.value(), "\": ", parts...));
  };
  TROUPE_RETURN_IF_ERROR(ValidateNetwork(*this, actor));
  TROUPE_RETURN_IF_ERROR(ValidateLeafEncoders(id, actor, observation_space));
  TROUPE_RETURN_IF_ERROR(ValidateModule(id, actor));
  TROUPE_RETURN_IF_ERROR(ValidateShared(*this, actor));
  TROUPE_RETURN_IF_ERROR(CheckImageBytes(*this));
  if (actor.role != kActorRole || actor.inputs != DefaultActor().inputs) {
    return error("the acting network is ", base::LogSafe(actor.role, 32), " of ", InputsText(actor),
                 "; expected actor of ", InputsText(DefaultActor()));
  }
  bool reads_joint = false;
  bool reads_state = false;
  for (const NetworkSpec& network : learner_networks) {
    if (!IsRole(network.role) || network.role == kActorRole) {
      return error("has a learner network of role \"", base::LogSafe(network.role, 32), "\"; expected 1 to ",
                   kMaxRoleBytes, " letters a to z, digits and _, and not actor");
    }
    if (&network != FindLearnerNetwork(network.role)) return error("has two networks of role ", network.role);
    TROUPE_RETURN_IF_ERROR(ValidateNetwork(*this, network));
    TROUPE_RETURN_IF_ERROR(ValidateLeafEncoders(id, network, observation_space));
    TROUPE_RETURN_IF_ERROR(ValidateModule(id, network));
    TROUPE_RETURN_IF_ERROR(ValidateLearnerInputs(*this, network));
    TROUPE_RETURN_IF_ERROR(ValidateShared(*this, network));
    reads_joint = reads_joint || network.Reads(NetworkInput::kJointObservation);
    reads_state = reads_state || network.Reads(NetworkInput::kState);
  }
  for (const LearnerNumber& number : learner_numbers) {
    const auto same = [&number](const LearnerNumber& other) { return other.name == number.name; };
    const bool taken = number.name == kActorRole || FindLearnerNetwork(number.name) != nullptr ||
                       std::count_if(learner_numbers.begin(), learner_numbers.end(), same) > 1;
    if (!IsRole(number.name) || taken || !std::isfinite(number.initial)) {
      return error("has a learner number \"", base::LogSafe(number.name, 32), "\" of ", number.initial,
                   "; expected a finite one with a name of its own, of 1 to ", kMaxRoleBytes,
                   " letters a to z, digits and _");
    }
  }
  if (learner_networks.size() + learner_numbers.size() > kMaxLearnerNetworks) {
    return error("has ", learner_networks.size(), " learner networks and ", learner_numbers.size(),
                 " learner numbers; expected at most ", kMaxLearnerNetworks, " of both");
  }
  const bool reads_actions = Reads(NetworkInput::kJointAction);
  if (reads_actions ? joint_action_size <= 0 : joint_action_size != 0) {
    return error("joint_action_size is ", joint_action_size, reads_actions ? "; expected above 0" : "; expected 0");
  }
  if (sequence_length < (remembers() ? 1 : 0) || sequence_length > (remembers() ? kMaxSequenceLength : 0)) {
    return remembers()
               ? error("sequence_length is ", sequence_length, "; expected 1 to ", kMaxSequenceLength)
               : error("sequence_length is ", sequence_length, " of networks that remember nothing; expected 0");
  }
  const auto fits = [](bool reads, int64_t size) { return reads ? size > 0 : size == 0; };
  if (fits(reads_joint, joint_observation_size) && fits(reads_state, state_size)) return absl::OkStatus();
  return error("critic_state_size is ", std::max(joint_observation_size, state_size),
               ", which does not fit its critic input");
}

void DropNetworks(PolicySpec* spec) {
  spec->actor = DefaultActor();
  spec->learner_networks = {DefaultCritic()};
  spec->learner_numbers.clear();
  spec->joint_action_size = 0;
  spec->continuous = ContinuousDistribution::kGaussian;
  spec->free_log_std = true;
  spec->initial_log_std = 0;
  spec->min_log_std = kMinLogStd;
  spec->max_log_std = kMaxLogStd;
  spec->joint_observation_size = 0;
  spec->state_size = 0;
  spec->sequence_length = 0;
  spec->agent_id_size = 0;
  spec->normalize_observations = false;
  spec->normalize_state = false;
  spec->action_bound_method = ActionBoundMethod::kNone;
  spec->action_scaling = false;
}

std::string ShapeOf(const PolicySpec& spec) {
  PolicySpec shape = spec;
  shape.id = PolicyId("*");
  shape.actor.output_gain = 0;
  shape.actor.hidden_gain = 0;
  shape.actor.initializer = Initializer::kOrthogonal;
  for (NetworkSpec& network : shape.learner_networks) {
    network.output_gain = 1;
    network.hidden_gain = 0;
    network.initializer = Initializer::kOrthogonal;
  }
  shape.initial_log_std = 0;
  shape.reward_discount = 1;
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
