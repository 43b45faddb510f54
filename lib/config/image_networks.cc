#include "lib/config/image_networks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/leaf_networks.h"
#include "lib/config/overrides.h"
#include "lib/config/torch_modules.h"
#include "lib/policy/convolutions.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/image.h"
#include "lib/space/observation_leaves.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

using policy::ConvLayer;
using policy::NetworkInput;
using policy::NetworkSpec;
using policy::PolicySpec;

struct DefaultLayers {
  int64_t least;  ///< pixels of the image's smaller side
  std::vector<ConvLayer> layers;
};

}  // namespace

std::vector<ConvLayer> ConvLayersOf(const v1::ConvFilters& filters) {
  std::vector<ConvLayer> layers;
  for (const v1::ConvFilter& filter : filters.filters()) {
    layers.push_back({filter.channels(), filter.kernel(), filter.stride()});
  }
  return layers;
}

std::vector<ConvLayer> ConvLayersFor(const policy::ImageShape& image) {
  static const auto* const kLayers = new std::vector<DefaultLayers>{
      {64, {{32, 8, 4}, {64, 4, 2}, {64, 3, 1}}},  // DQN's (Mnih et al. 2015), for 84 x 84
      {32, {{16, 4, 2}, {32, 4, 2}, {32, 3, 2}}},
      {16, {{16, 3, 2}, {32, 3, 2}}},
      {10, {{16, 3, 1}, {32, 3, 2}}},
      {5, {{16, 3, 1}, {32, 3, 1}}},
  };
  for (const DefaultLayers& of : *kLayers) {
    if (std::min(image.height, image.width) >= of.least) return of.layers;
  }
  return {};
}

bool ReadsOwnObservation(const NetworkSpec& network) {
  return !network.inputs.empty() && network.inputs[0] == NetworkInput::kObservation;
}

namespace {

/// Whether the critic reads all agents' observations, each like its own agent's.
bool ReadsLikeObservations(const PolicySpec& spec, const env::EnvSpec& env) {
  return spec.critic_input() == NetworkInput::kJointObservation &&
         std::all_of(env.possible_agents.begin(), env.possible_agents.end(), [&spec](const env::AgentSpec& agent) {
           return agent.observation_space == spec.observation_space;
         });
}

/// Images of bytes have no moments.
absl::Status CheckMomentsOfImages(const RunConfig& config, const SettingsOf& of, const PolicySpec& spec,
                                  const std::string& whose) {
  const v1::AlgorithmConfig algorithm = AlgorithmOf(config, of);
  const auto error = [&](const char* key, const char* otherwise) {
    return config.KeyError(
        AlgorithmKey(config, of, key),
        absl::StrCat("got true, but ", whose,
                     ", an image of bytes that networks read scaled by its bounds; expected false, or ", otherwise));
  };
  if (algorithm.normalize_observations()) return error("normalize_observations", "model.encoder: mlp");
  if (spec.normalize_state && spec.ImagesOf(spec.critic()) > 0) {
    return error("normalize_state", "model.critic_encoder: mlp");
  }
  return absl::OkStatus();
}

/// The first image that the actor reads as numbers, in words: "Box(...)", or "Box(...) at camera"; empty: none. Of
/// `any` image, convolved or not.
std::string ImageOf(const PolicySpec& spec, bool any) {
  const std::vector<space::ObservationLeaf> leaves = space::ObservationLeaves(spec.observation_space);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const space::ObservationLeaf& leaf = leaves[i];
    if (!LooksLikeImage(leaf.space)) continue;
    const std::vector<policy::LeafEncoder>& encoders = spec.actor.leaf_encoders;
    const bool convolved = std::any_of(encoders.begin(), encoders.end(), [i](const policy::LeafEncoder& encoder) {
      return encoder.leaf == static_cast<int64_t>(i) && !encoder.conv_layers.empty();
    });
    if (!any && (convolved || spec.actor.encoder == policy::EncoderKind::kCnn)) continue;
    const std::string name = space::ObservationLeafNames(spec.observation_space)[i];
    return name.empty() ? leaf.space.ToString() : absl::StrCat(leaf.space.ToString(), " at ", base::LogSafe(name, 64));
  }
  return "";
}

}  // namespace

absl::Status SetEncoders(const RunConfig& config, const env::EnvSpec& env, const SettingsOf& of, PolicySpec* spec) {
  const v1::ModelConfig model = ModelOf(config, of);
  const bool joint = ReadsLikeObservations(*spec, env) && model.critic_encoder() == v1::CRITIC_ENCODER_AUTO;
  const auto encodes = [&](const NetworkSpec& network) {
    const bool is_critic = network.role == policy::kCriticRole;
    if (IsModule(model, network) || (is_critic && model.critic_encoder() == v1::CRITIC_ENCODER_MLP)) return false;
    return ReadsOwnObservation(network) || (is_critic && joint);
  };
  if (!encodes(spec->actor) && !encodes(spec->critic())) return absl::OkStatus();
  const space::SpaceKind kind = spec->observation_space.kind();
  const bool has_leaves = kind == space::SpaceKind::kDict || kind == space::SpaceKind::kTuple;
  if (has_leaves || model.has_leaf_encoders()) return SetLeafEncoders(config, of, spec);
  const bool is_image = spec->image().size() > 0;
  const bool given = model.has_conv_filters();
  bool convolves = model.encoder() == v1::ENCODER_CNN;
  if (model.encoder() == v1::ENCODER_AUTO) convolves = ConvolvesUnasked(model, spec->observation_space) || given;
  if (!convolves) return absl::OkStatus();
  const std::string whose =
      absl::StrCat("policy \"", spec->id.value(), "\" observes ", spec->observation_space.ToString());
  if (!is_image) {
    const char* const key = given && model.encoder() == v1::ENCODER_AUTO ? "conv_filters" : "encoder";
    return config.KeyError(
        ModelKey(config, of, key),
        absl::StrCat(key[0] == 'e' ? "got cnn" : "got convolutions", ", but ", whose,
                     "; expected an image, a Box of [height, width, channels] or [height, width], or "
                     "model.encoder: mlp"));
  }
  std::vector<ConvLayer> layers = ConvLayersOf(model.conv_filters());
  if (!given) layers = ConvLayersFor(spec->image());
  if (layers.empty()) {
    return config.KeyError(ModelKey(config, of, "conv_filters"),
                           absl::StrCat("got auto, but ", whose,
                                        "; expected [[channels, kernel, stride], ...] for so small an image, or "
                                        "model.encoder: mlp"));
  }
  for (NetworkSpec* const network : {&spec->actor, spec->mutable_critic()}) {
    if (!encodes(*network)) continue;
    network->encoder = policy::EncoderKind::kCnn;
    network->conv_layers = layers;
    if (const absl::Status fits = policy::ValidateConvolutions(*spec, *network); !fits.ok()) {
      return config.KeyError(ModelKey(config, of, "conv_filters"), std::string(fits.message()));
    }
  }
  return spec->image_bytes() ? CheckMomentsOfImages(config, of, *spec, whose) : absl::OkStatus();
}

bool ConvolvesUnasked(const v1::ModelConfig& model, const space::Space& space) {
  return model.scaling() == v1::SCALING_RULE_BY_255 ? space::IsByteImage(space) : space::IsImage(space);
}

bool LooksLikeImage(const space::Space& space) {
  if (space::IsByteImage(space)) return true;
  if (space.kind() != space::SpaceKind::kBox || space.shape().size() < 3) return false;
  // Channels first, frames first, or floats.
  return std::count_if(space.shape().begin(), space.shape().end(),
                       [](int64_t extent) { return extent >= space::kMinImageExtent; }) >= 2;
}

std::vector<std::string> ImageWarnings(const std::vector<PolicySpec>& specs) {
  std::string flat;
  std::string joint;
  std::string behind_state;
  for (const PolicySpec& spec : specs) {
    if (!spec.policy_class.has_weights() || ImageOf(spec, /*any=*/true).empty()) continue;
    if (behind_state.empty() && spec.critic_reads_agent_state()) {
      behind_state = absl::StrCat("the critic of policy \"", spec.id.value(), "\" reads its agent's image, ",
                                  ImageOf(spec, /*any=*/true),
                                  ", as a row of numbers behind the state; algorithm.use_agent_specific_state: false "
                                  "leaves it out");
    }
    const std::string image = ImageOf(spec, /*any=*/false);
    if (flat.empty() && !image.empty()) {
      flat = absl::StrCat("policy \"", spec.id.value(), "\" reads an image, ", image,
                          ", as a row of numbers; model.encoder: cnn has convolutions, for images of [height, width, "
                          "channels]");
    }
    const bool convolves = spec.critic().encoder == policy::EncoderKind::kCnn;
    if (joint.empty() && spec.critic_input() == NetworkInput::kJointObservation && !convolves) {
      joint = absl::StrCat("the critic of policy \"", spec.id.value(), "\" reads the images of all agents as a row of ",
                           spec.critic_input_size(),
                           " numbers of 4 bytes; algorithm.name: ippo has a critic with convolutions over its agent's "
                           "image, algorithm.use_global_state: true one of the environment's state");
    }
  }
  std::vector<std::string> warnings;
  for (std::string* const warning : {&flat, &joint, &behind_state}) {
    if (!warning->empty()) warnings.push_back(std::move(*warning));
  }
  return warnings;
}

}  // namespace troupe::config
