#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/module_spec.h"
#include "lib/space/image.h"

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

/// An input of a network; its inputs lie side by side in the order of NetworkSpec::inputs. The first three values are
/// in the spec's hash: never renumber.
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

/// The first part of a network, which reads its inputs.
enum class EncoderKind : uint8_t {
  kMlp = 1,          ///< "mlp": fully connected layers
  kCnn = 2,          ///< "cnn": convolutions over the observation, an image; then fully connected layers
  kAttention = 3,    ///< "attention": over agents, of a critic's joint observation; then fully connected layers
  kLeaves = 4,       ///< "leaves": encoders of parts of a Dict or Tuple observation; then fully connected layers
  kTorchScript = 5,  ///< "torchscript": a user's module, which is the whole network
  kShared = 6,       ///< "shared": the actor's, with its core where it has one; of a critic
};
/// The source of a network's first weights; biases begin at zero but with kTorch.
enum class Initializer : uint8_t {
  kOrthogonal = 1,  ///< "orthogonal" (Saxe et al. 2014)
  kXavier = 2,      ///< "xavier": uniform (Glorot & Bengio 2010), torch.nn.init.xavier_uniform_
  kTorch = 3,       ///< "torch": what torch.nn.Linear, Conv2d, GRU and LSTM begin with; gains have no effect
};
/// The part that remembers from decision to decision.
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

/// An observation is an image where its Box has rows and columns.
using ImageShape = space::ImageExtent;

/// A convolution of a CNN, as torch.nn.Conv2d with square kernels and without padding. Plain value.
struct ConvLayer {
  int64_t channels = 0;  ///< that it makes
  int64_t kernel = 0;    ///< rows and columns of an image that it reads at a time
  int64_t stride = 1;

  /// The shape of the image that it makes; height or width below 1: the kernel is larger than `input`.
  ImageShape OutputOf(const ImageShape& input) const {
    const auto extent = [this](int64_t of) { return of < kernel ? 0 : (of - kernel) / stride + 1; };
    return {extent(input.height), extent(input.width), channels};
  }
  bool operator==(const ConvLayer& other) const = default;
};

/// A network's encoder of one leaf of its observation: convolutions where the leaf is an image, then fully connected
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
  /// A CNN has 1 to 8, over the observation, or of a critic of the joint observation over that of each agent; each with
  /// an activation. What the last one makes, rows of the image after another, channels innermost, lies side by side
  /// with the other inputs for what comes next; of an agent that is not there it is zeros.
  std::vector<ConvLayer> conv_layers = {};
  /// kLeaves has 1 to 64, in the order of their leaves. What each makes lies in its leaf's place, leaves without one
  /// as they are; joined, they stand for the observation in what comes next.
  std::vector<LeafEncoder> leaf_encoders = {};
  /// kAttention has one, over the joint observation; what it makes lies before the other inputs for what comes next.
  AttentionSpec attention = {};
  /// The layers that read the inputs side by side; empty only behind an encoder that is no mlp, or before a core. Of
  /// kShared empty: they are the encoder's.
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
  /// True if it reads actions, which lie behind all other inputs.
  bool reads_actions() const { return Reads(NetworkInput::kAction) || Reads(NetworkInput::kJointAction); }
  /// True if it remembers from decision to decision: it has a core, or is a module with a state.
  bool remembers() const { return core.remembers() || module.state_size > 0; }
  /// Elements of what it remembers of an agent; 0: nothing.
  int64_t state_size() const { return core.state_size() + module.state_size; }
  /// The shape of the image that the last convolution makes of `image`.
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
/// For each encoder of a leaf its place, convolutions and layers: "{0: [] [32], 2: [[16, 8, 4]] []}"; "{}": none.
std::string LeavesText(const NetworkSpec& network);
/// The core's numbers and what stands behind it: "none", or "gru of 1 x 64, then []".
std::string CoreText(const NetworkSpec& network);
/// The answer of `who`, which computes the encoder mlp alone, to the network: OK, or UNIMPLEMENTED with encoder and
/// role.
absl::Status CheckEncoderIsMlp(std::string_view who, const NetworkSpec& network);
/// The roles that there are.
inline constexpr char kActorRole[] = "actor";
inline constexpr char kCriticRole[] = "critic";
/// Behind a network's role: the section of its target's parameters.
inline constexpr char kTargetOf[] = ".target";
/// As configurations have them by default.
NetworkSpec DefaultActor();
NetworkSpec DefaultCritic();

}  // namespace troupe::policy
