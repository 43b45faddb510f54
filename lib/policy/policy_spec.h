#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/ids.h"
#include "lib/policy/module_spec.h"
#include "lib/policy/policy_class.h"
#include "lib/space/image.h"
#include "lib/space/row_scaling.h"
#include "lib/space/space.h"

namespace troupe::policy {

enum class Activation : uint8_t {
  kTanh = 1,
  kRelu = 2,
  kElu = 3,
  kGelu = 4,  ///< the exact form, 0.5 x (1 + erf(x / sqrt 2))
  kSigmoid = 5,
  kSilu = 6,
  kIdentity = 7,
};
/// "tanh", ...; both directions. INVALID_ARGUMENT lists the names.
std::string_view ActivationName(Activation activation);
absl::StatusOr<Activation> ParseActivation(std::string_view name);

/// What a network reads; its inputs lie side by side in the order of NetworkSpec::inputs. The first three values are in
/// the spec's hash: never renumber.
enum class NetworkInput : uint8_t {
  kObservation = 1,       ///< the agent's own
  kJointObservation = 2,  ///< all agents' observations in the order of possible_agents, absent ones zero, with a
                          ///< presence bit each
  kState = 3,             ///< the environment's global state
  kAgentId = 4,           ///< one-hot of the agent's slot, agent_id_size wide; nothing where that is 0
  kJointAction = 5,       ///< all agents' actions, joint_action_size numbers; of a learner network
  kAction = 6,            ///< the agent's own action, action_size() numbers; of a learner network
};
/// "observation", "joint_observation", "state", ...
std::string_view NetworkInputName(NetworkInput input);
/// INVALID_ARGUMENT, with the name, for one that this version does not know.
absl::StatusOr<NetworkInput> ParseNetworkInput(std::string_view name);

/// What a network makes of its inputs.
enum class EncoderKind : uint8_t {
  kMlp = 1,          ///< "mlp": fully connected layers
  kCnn = 2,          ///< "cnn": convolutions over the observation, an image; then fully connected layers
  kAttention = 3,    ///< "attention": over agents, of a critic's joint observation; then fully connected layers
  kLeaves = 4,       ///< "leaves": encoders of parts of a Dict or Tuple observation; then fully connected layers
  kTorchScript = 5,  ///< "torchscript": a user's module, which is the whole network
  kShared = 6,       ///< "shared": the actor's, with its core where it has one; of a critic
};
/// What a network's first weights are drawn from; biases begin at zero but with kTorch.
enum class Initializer : uint8_t {
  kOrthogonal = 1,  ///< "orthogonal" (Saxe et al. 2014)
  kXavier = 2,      ///< "xavier": uniform (Glorot & Bengio 2010), torch.nn.init.xavier_uniform_
  kTorch = 3,       ///< "torch": what torch.nn.Linear, Conv2d, GRU and LSTM begin with; gains have no effect
};
/// What it remembers from decision to decision.
enum class CoreKind : uint8_t {
  kNone = 1,  ///< "none"
  kGru = 2,   ///< "gru": gated recurrent units (Cho et al. 2014), as torch.nn.GRU
  kLstm = 3,  ///< "lstm": long short-term memory (Hochreiter & Schmidhuber 1997), as torch.nn.LSTM
};
/// All that there are, and their names in tables and texts. What is not listed is refused.
inline constexpr std::array<std::pair<EncoderKind, const char*>, 6> kEncoderNames = {
    {{EncoderKind::kMlp, "mlp"},
     {EncoderKind::kCnn, "cnn"},
     {EncoderKind::kAttention, "attention"},
     {EncoderKind::kLeaves, "leaves"},
     {EncoderKind::kTorchScript, "torchscript"},
     {EncoderKind::kShared, "shared"}}};
inline constexpr std::array<std::pair<CoreKind, const char*>, 3> kCoreNames = {
    {{CoreKind::kNone, "none"}, {CoreKind::kGru, "gru"}, {CoreKind::kLstm, "lstm"}}};
inline constexpr std::array<std::pair<Initializer, const char*>, 3> kInitializerNames = {
    {{Initializer::kOrthogonal, "orthogonal"}, {Initializer::kXavier, "xavier"}, {Initializer::kTorch, "torch"}}};

inline constexpr size_t kMaxHiddenLayers = 8;    ///< of encoder and head each
inline constexpr int64_t kMaxLayerSize = 16384;  ///< units

/// Of an observation, which is an image where its Box has rows and columns.
using ImageShape = space::ImageExtent;

/// A convolution of a CNN, as torch.nn.Conv2d with square kernels and without padding. Plain value.
struct ConvLayer {
  int64_t channels = 0;  ///< that it makes
  int64_t kernel = 0;    ///< rows and columns of an image that it reads at a time
  int64_t stride = 1;

  /// Of the image that it makes; height or width below 1: the kernel is larger than `input`.
  ImageShape OutputOf(const ImageShape& input) const {
    const auto extent = [this](int64_t of) { return of < kernel ? 0 : (of - kernel) / stride + 1; };
    return {extent(input.height), extent(input.width), channels};
  }
  bool operator==(const ConvLayer& other) const = default;
};

/// What a network makes of one leaf of its observation: convolutions where the leaf is an image, then fully connected
/// layers, each with an activation behind it. Plain value.
struct LeafEncoder {
  int64_t leaf = 0;                         ///< its place among space::ObservationLeaves
  std::vector<ConvLayer> conv_layers = {};  ///< 0 to 8
  std::vector<int64_t> hidden_sizes = {};   ///< 0 to 8; with no convolutions 1 to 8
  bool operator==(const LeafEncoder& other) const = default;
};

/// Attention over agents (lib/policy/attention.h): each agent's observation is embedded by the layer of its observation
/// space; agents attend to each other; their mean is what comes next. Plain value.
struct AttentionSpec {
  int64_t size = 0;   ///< numbers of an agent's embedding; 0 without attention, as heads
  int64_t heads = 0;  ///< a divisor of size
  /// Elements of each distinct observation space; an embedding layer each. In the order in which `agents` name them.
  std::vector<int64_t> observation_sizes = {};
  std::vector<int64_t> agents = {};  ///< by agent slot, the place of its observation space in observation_sizes

  /// Elements of the joint observation: every agent's, then a presence bit each.
  int64_t joint_observation_size() const;
  bool operator==(const AttentionSpec& other) const = default;
};

/// The recurrent part of a network, between its encoder and its head. Plain value.
struct CoreSpec {
  CoreKind kind = CoreKind::kNone;
  int64_t size = 0;    ///< units of a layer; 0 without a core, as layers
  int64_t layers = 0;  ///< one reads the other

  bool remembers() const { return kind != CoreKind::kNone; }
  /// Rows of a layer's weights for each of its units: 3 of a GRU (reset, update, new), 4 of an LSTM (input, forget,
  /// cell, output), in torch.nn's order.
  int64_t gates() const { return kind == CoreKind::kGru ? 3 : kind == CoreKind::kLstm ? 4 : 0; }
  /// Elements of what it remembers: by layer the output, of an LSTM followed by the cell.
  int64_t state_size() const { return size * layers * (kind == CoreKind::kLstm ? 2 : 1); }
  bool operator==(const CoreSpec& other) const = default;
};

/// One network of a policy: its inputs, the encoder's layers, the core, the head's hidden layers, and a last layer.
/// Plain value.
struct NetworkSpec {
  std::string role = {};  ///< "actor", "critic"; unique within a policy, and what its parameters' names begin with
  std::vector<NetworkInput> inputs = {NetworkInput::kObservation};
  EncoderKind encoder = EncoderKind::kMlp;
  /// Of a CNN, 1 to 8, over the observation, or of a critic of the joint observation over that of each agent; each with
  /// an activation. What the last one makes, rows of the image after another, channels innermost, lies side by side
  /// with the other inputs for what comes next; of an agent that is not there it is zeros.
  std::vector<ConvLayer> conv_layers = {};
  /// Of kLeaves, 1 to 64 in the order of their leaves. What each makes lies in its leaf's place, leaves without one
  /// as they are; joined, they stand for the observation in what comes next.
  std::vector<LeafEncoder> leaf_encoders = {};
  /// Of kAttention, over the joint observation; what it makes lies before the other inputs for what comes next.
  AttentionSpec attention = {};
  /// Of what reads the inputs side by side; empty only behind an encoder that is no mlp, or before a core. Of kShared
  /// empty: they are the encoder's.
  std::vector<int64_t> hidden_sizes = {64, 64};
  CoreSpec core = {};
  std::vector<int64_t> head_hidden_sizes = {};  ///< behind a core or kShared; empty without
  Activation activation = Activation::kTanh;    ///< after each layer of encoder and head but the last
  /// Layer normalization (Ba et al. 2016, torch.nn.LayerNorm with scale, shift and epsilon 1e-5) of what each hidden
  /// layer of encoder, leaves' encoders and head makes, before its activation. Not of convolutions and attention.
  bool layer_norm = false;
  Initializer initializer = Initializer::kOrthogonal;
  double output_gain = 1.0;  ///< of the last layer's first weights
  double hidden_gain = 0.0;  ///< of the other layers' (of cores and of attention's projections 1); 0: the activation's
  /// The last layer gives a value for each action, of each discrete leaf its categories: Q-values. An actor with it
  /// takes the largest, but where WeightSnapshot::kEpsilon explores. Else it gives what actions are drawn from, of an
  /// actor, or one number.
  bool action_values = false;
  /// The learner keeps a second copy of its parameters, the section "ROLE.target", which no optimizer changes.
  bool has_target = false;
  ModuleSpec module = {};  ///< of a kTorchScript, which has no layers and no core beside it

  bool Reads(NetworkInput input) const;
  /// Whether it reads actions, which lie behind all other inputs.
  bool reads_actions() const { return Reads(NetworkInput::kAction) || Reads(NetworkInput::kJointAction); }
  /// Whether it remembers from decision to decision: it has a core, or is a module with a state.
  bool remembers() const { return core.remembers() || module.state_size > 0; }
  /// Elements of what it remembers of an agent; 0: nothing.
  int64_t state_size() const { return core.state_size() + module.state_size; }
  /// What the last convolution makes of `image`.
  ImageShape Convolved(ImageShape image) const {
    for (const ConvLayer& layer : conv_layers) image = layer.OutputOf(image);
    return image;
  }
  /// Fully connected layers in all, the last one included; their parameters are numbered from 0.
  size_t num_layers() const { return hidden_sizes.size() + head_hidden_sizes.size() + 1; }
  bool operator==(const NetworkSpec& other) const = default;
};
/// The encoder's name, and the core's where there is one: "mlp", "mlp+NAME".
std::string KindName(const NetworkSpec& network);
/// Channels, kernel and stride of each convolution: "[[32, 8, 4], [64, 4, 2]]"; "[]" of what is no CNN.
std::string ConvText(const NetworkSpec& network);
/// Of each encoder of a leaf its place, convolutions and layers: "{0: [] [32], 2: [[16, 8, 4]] []}"; "{}": none.
std::string LeavesText(const NetworkSpec& network);
/// The core's numbers and what stands behind it: "none", or "gru of 1 x 64, then []".
std::string CoreText(const NetworkSpec& network);
/// What `who`, which computes the encoder mlp alone, says of the network: OK, or UNIMPLEMENTED with encoder and role.
absl::Status CheckEncoderIsMlp(std::string_view who, const NetworkSpec& network);
/// The roles that there are.
inline constexpr char kActorRole[] = "actor";
inline constexpr char kCriticRole[] = "critic";
/// Behind a network's role: the section of its target's parameters.
inline constexpr char kTargetOf[] = ".target";
/// As configurations have them by default.
NetworkSpec DefaultActor();
NetworkSpec DefaultCritic();

/// How a continuous action is brought into its Box before the environment sees it. The recorded action is the unmapped
/// one.
enum class ActionBoundMethod : uint8_t {
  kNone = 1,  ///< as sampled
  kClip = 2,  ///< clipped to [low, high] (with action_scaling: to [-1, 1])
  kTanh = 3,  ///< tanh, which needs action_scaling
};

/// What continuous actions are drawn from. The recorded action is the one before the bound method. Its log-probability
/// is of that number, but of kSquashedGaussian, where it is of its tanh, what the environment gets before
/// action_scaling.
enum class ContinuousDistribution : uint8_t {
  kGaussian = 1,          ///< "gaussian": normal, independent by element
  kSquashedGaussian = 2,  ///< "squashed_gaussian": tanh of one; the log-probability counts its Jacobian
  kBeta = 3,              ///< "beta" on [-1, 1] (Chou et al. 2017): 2 x - 1 of x ~ Beta(1 + softplus, 1 + softplus)
};
inline constexpr std::array<std::pair<ContinuousDistribution, const char*>, 3> kContinuousDistributionNames = {
    {{ContinuousDistribution::kGaussian, "gaussian"},
     {ContinuousDistribution::kSquashedGaussian, "squashed_gaussian"},
     {ContinuousDistribution::kBeta, "beta"}}};
/// The largest output that makes alpha or beta of a kBeta, with no gradient beyond: a standard deviation of 7e-4.
inline constexpr float kMaxBetaOutput = 1e6f;
/// Recorded actions of a kBeta are within [-kMaxBetaAction, kMaxBetaAction], the last floats before -1 and 1.
inline constexpr float kMaxBetaAction = 0x1.fffffep-1f;
/// Bounds of log standard deviations where nothing else is said.
inline constexpr double kMinLogStd = -20.0;
inline constexpr double kMaxLogStd = 5.0;

/// A number that the learner trains beside a policy's networks: the logarithm of a temperature. Plain value.
struct LearnerNumber {
  std::string name = {};  ///< the section of its parameter "NAME.value"; other than the roles
  double initial = 0;

  bool operator==(const LearnerNumber& other) const = default;
};

/// Everything that must be equal for two processes to speak of the same policy: spaces, networks, inputs, action
/// bounding. The acting network is what workers need; what the learner has beside it stands in learner_networks. Plain
/// value. All sizes follow from it.
struct PolicySpec {
  PolicyId id;
  PolicyClass policy_class;  ///< without weights, what is said of networks here has no effect
  space::Space observation_space;
  space::Space action_space;
  NetworkSpec actor = DefaultActor();  ///< the acting network
  /// In the order of their parameters. All read the same, but for actions.
  std::vector<NetworkSpec> learner_networks = {DefaultCritic()};
  std::vector<LearnerNumber> learner_numbers = {};
  ContinuousDistribution continuous = ContinuousDistribution::kGaussian;  ///< of all continuous leaves
  /// Of Gaussian kinds: a parameter per action element; else the actor's last layer says it, behind the means of a
  /// leaf.
  bool free_log_std = true;
  double initial_log_std = 0.0;     ///< of a free one; of a predicted one added to its first biases
  double min_log_std = kMinLogStd;  ///< clamped, with no gradient beyond; of Gaussian kinds
  double max_log_std = kMaxLogStd;
  int64_t joint_observation_size = 0;   ///< elements, presence bits included; 0: no network reads it
  int64_t state_size = 0;               ///< elements of the global state; 0: no network reads it
  int64_t joint_action_size = 0;        ///< numbers of all agents' actions; 0: no network reads them
  int64_t agent_id_size = 0;            ///< > 0: a one-hot of this many agent slots is appended to the actor's input
  bool normalize_observations = false;  ///< running mean and variance, kept at the learner
  bool normalize_state = false;         ///< the same of the joint observation or state that the critic reads
  /// Bytes are scaled as before their Box's bounds counted (space::ScalingBy255; encoders of leaves divide by 255): of
  /// policies of older runs. No effect where bytes_have_bounds() is false.
  bool bytes_by_255 = false;
  bool has_action_mask = false;
  ActionBoundMethod action_bound_method = ActionBoundMethod::kClip;
  bool action_scaling = false;  ///< maps [-1, 1] to the Box's range
  /// What a reward that comes k env steps after the decision that it follows is multiplied by, to the power of k; 1:
  /// rewards of a wait are added as they come. In [0, 1].
  double reward_discount = 1;
  /// Decisions of an agent that a network that remembers is differentiated through at a time: sequences begin at every
  /// sequence_length-th decision of an episode. 0 exactly where no network remembers.
  int64_t sequence_length = 0;

  int64_t observation_size() const { return observation_space.flat_size(); }
  /// Elements that the network reads for each row.
  int64_t InputSize(const NetworkSpec& network) const;
  /// Those of them that are actions, the last ones.
  int64_t ActionInputSize(const NetworkSpec& network) const;
  /// Elements of its last layer: actor_output_size() of the actor and of action values, else 1.
  int64_t OutputSize(const NetworkSpec& network) const;
  /// Numbers of an action that a network reads: of each discrete leaf a one-hot, then of each continuous one its words.
  int64_t action_size() const;
  int64_t actor_input_size() const { return InputSize(actor); }
  /// NetworkSpec::state_size of the actor.
  int64_t actor_state_size() const { return actor.state_size(); }
  /// Whether any of its networks does.
  bool remembers() const;

  /// Whether any of its networks reads it.
  bool Reads(NetworkInput input) const;
  /// The learner network of the role; nullptr when there is none.
  const NetworkSpec* FindLearnerNetwork(std::string_view role) const;
  /// The network of the role critic, else the first learner network, whose inputs are those of all; one without layers
  /// and inputs where the policy has none.
  const NetworkSpec& critic() const;
  /// For a change; a policy without gets the default one.
  NetworkSpec* mutable_critic();
  /// Whether the critic has no encoder and no core of its own, but reads what the actor's make (EncoderKind::kShared).
  bool shares_encoder() const { return critic().encoder == EncoderKind::kShared; }
  /// Whose encoder and core stand before the head of `network`: its own, or of kShared the actor's.
  const NetworkSpec& EncodingNetwork(const NetworkSpec& network) const {
    return network.encoder == EncoderKind::kShared ? actor : network;
  }
  int64_t critic_input_size() const { return InputSize(critic()); }
  /// What the critic reads beside the agent's slot: kObservation (decentralized: IPPO), kJointObservation (MAPPO) or
  /// kState (MAPPO with use_global_state).
  NetworkInput critic_input() const;
  /// Elements of the joint observation or the state, whichever the critic reads; 0 for kObservation.
  int64_t critic_state_size() const;
  /// `size` is the critic_state_size. Whether it reads the slot stays.
  void SetCriticInput(NetworkInput input, int64_t size);
  /// Whether the one-hot is appended to the critic's input, too.
  bool critic_agent_id() const { return critic().Reads(NetworkInput::kAgentId); }
  void SetCriticAgentId(bool reads);
  /// Whether the critic of the global state reads its agent's own observation, too, behind the state (MAPPO's
  /// agent-specific global state).
  bool critic_reads_agent_state() const {
    return critic_input() == NetworkInput::kState && critic().Reads(NetworkInput::kObservation);
  }
  /// Of a critic that reads the state.
  void SetCriticReadsAgentState(bool reads);
  /// Of all networks.
  void SetActivation(Activation activation);

  bool HasContinuousActions() const;
  /// True if every bound of every continuous action is finite; true without one.
  bool HasBoundedActions() const;
  int64_t action_words() const { return action_space.action_words(); }
  int64_t mask_size() const { return has_action_mask ? action_space.mask_size() : 0; }
  /// Numbers of the actor's last layer for a leaf: its categories; of a continuous one a mean per word, with predicted
  /// deviations followed by a log standard deviation per word; of kBeta the two numbers that make alpha, per word, and
  /// beta, per word.
  int64_t OutputsOf(const space::ActionLeaf& leaf) const;
  /// Width of the actor's last layer: OutputsOf each discrete leaf in leaf order, then of each continuous one.
  int64_t actor_output_size() const;
  /// Number of log-standard-deviation parameters (continuous words); 0 where there is none that is free.
  int64_t log_std_size() const;
  /// True if networks read bytes that the two rules for them scale differently: all but those of a Box of 0 to 255 that
  /// is the whole observation.
  bool bytes_have_bounds() const;
  /// How rows of observations reach the networks, before a normalization. Encoders of leaves may divide by 255 then
  /// (ObservationPart::divided).
  space::RowScaling observation_scaling() const {
    return bytes_by_255 ? space::ScalingBy255(observation_space) : space::ScalingByBounds(observation_space);
  }
  /// Of the observation as convolutions read it; zeros where it is no image.
  ImageShape image() const;
  /// Whether observations are images of bytes that a CNN reads: they stay bytes until the networks, which all read them
  /// scaled (observation_scaling).
  bool image_bytes() const;
  /// Images of a row that the network convolves: its agent's, or of a critic of the joint observation one of each
  /// agent; 0 of what is no CNN.
  int64_t ImagesOf(const NetworkSpec& network) const;
  /// Elements of a row of the network's inputs that stay bytes, the first ones; 0: all are floats.
  int64_t ByteElements(const NetworkSpec& network) const;

  /// INVALID_ARGUMENT for a bad id, missing spaces, a mask with a continuous-only action space, an unbounded Box with
  /// scaling, squashing or kBeta, tanh without scaling, a bound method that contradicts the distribution, a
  /// distribution but kGaussian without a continuous leaf, bounds of log deviations that are no interval within [-20,
  /// 20] or leave the first one out, sizes out of range, a normalizer for a class without weights, roles that are twice
  /// there or no names, inputs that their network cannot have, action values of an action space that is not discrete,
  /// convolutions over what is no image or smaller than a kernel. Sizes: hidden layers 1..8, each 1..16384; with a core
  /// or an encoder that is no mlp 0..8 before it, with a core 0..8 behind it; core layers 1..4 of 1..4096 units,
  /// sequences of 1..65536 decisions; convolutions 1..8, each 1..1024 channels of kernels 1..64 with strides 1..64,
  /// that make at most Space::kMaxElements numbers; encoders of leaves 1..64, with convolutions and layers as those;
  /// attention as lib/policy/attention.h says. A critic that shares the actor's encoder reads what the actor reads, and
  /// has a head alone: hidden layers 0..8.
  absl::Status Validate() const;
  /// The part of Validate that is of what continuous actions are drawn from.
  absl::Status ValidateDistribution() const;
  /// The part of Validate that is of networks and their inputs.
  absl::Status ValidateNetworks() const;
  /// Canonical text of everything above (part of the spec hash, which checkpoints and workers of before have: what they
  /// could say has the text that they gave it).
  std::string ToString() const;
};

/// Takes out of `spec` what only networks have: a policy of a class without weights sees no one-hot, and its actions
/// are the environment's own, not scaled and not bounded.
void DropNetworks(PolicySpec* spec);

/// Canonical text of what the networks of two policies must have in common to hold each other's weights: all of the
/// spec but the id, what only the first weights depend on, and what rewards are discounted by.
std::string ShapeOf(const PolicySpec& spec);

/// INVALID_ARGUMENT, naming the first two policies whose shapes differ, unless those of all that
/// train are the same.
absl::Status CheckSwappable(const std::vector<PolicySpec>& specs);
/// The first part in which `got` acts or is laid out otherwise than `expected`, as "NAME is X, expected Y; set KEYS
/// alike"; empty when weights of one are weights of the other. Ids, classes and what only fresh weights are made from
/// may differ.
std::string FirstDifference(const PolicySpec& got, const PolicySpec& expected);

}  // namespace troupe::policy
