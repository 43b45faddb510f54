#include "lib/policy/convolutions.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/image.h"

namespace troupe::policy {

ImageShape PolicySpec::image() const { return space::ImageOf(observation_space); }

bool PolicySpec::image_bytes() const {
  if (observation_space.flat_dtype() != tensor::DType::kUint8) return false;
  return actor.encoder == EncoderKind::kCnn ||
         std::any_of(learner_networks.begin(), learner_networks.end(),
                     [](const NetworkSpec& network) { return network.encoder == EncoderKind::kCnn; });
}

int64_t PolicySpec::ImagesOf(const NetworkSpec& network) const {
  if (network.encoder != EncoderKind::kCnn) return 0;
  return network.Reads(NetworkInput::kJointObservation) ? joint_observation_size / (observation_size() + 1) : 1;
}

int64_t PolicySpec::ByteElements(const NetworkSpec& network) const {
  if (!image_bytes()) return 0;
  const int64_t images = network.Reads(NetworkInput::kObservation) ? 1 : ImagesOf(network);
  return images * observation_size();
}

std::string ConvLayersText(const std::vector<ConvLayer>& layers) {
  return absl::StrCat("[",
                      absl::StrJoin(layers, ", ",
                                    [](std::string* out, const ConvLayer& layer) {
                                      absl::StrAppend(out, "[", layer.channels, ", ", layer.kernel, ", ", layer.stride,
                                                      "]");
                                    }),
                      "]");
}

std::string ConvText(const NetworkSpec& network) { return ConvLayersText(network.conv_layers); }

absl::Status ValidateConvolutions(const PolicySpec& spec, const NetworkSpec& network) {
  const std::string whose = absl::StrCat("policy \"", spec.id.value(), "\": ", base::LogSafe(network.role, 32));
  const auto error = [&](auto&&... parts) { return absl::InvalidArgumentError(absl::StrCat(whose, parts...)); };
  const std::vector<ConvLayer>& layers = network.conv_layers;
  if (network.encoder != EncoderKind::kCnn) {
    return layers.empty() ? absl::OkStatus()
                          : error(" is no CNN, but has ", layers.size(), " convolutions; expected 0");
  }
  const ImageShape image = spec.image();
  const bool joint = !network.inputs.empty() && network.inputs[0] == NetworkInput::kJointObservation;
  if (image.size() > 0 && !joint && (network.inputs.empty() || network.inputs[0] != NetworkInput::kObservation)) {
    return error(" is a CNN that reads ",
                 network.inputs.empty() ? "nothing" : std::string(NetworkInputName(network.inputs[0])),
                 "; expected one whose first input is the observation, the image, or the joint observation");
  }
  TROUPE_RETURN_IF_ERROR(ValidateConvLayers(whose, layers, image));
  if (!joint) return absl::OkStatus();
  // An image and a presence bit each.
  if (spec.joint_observation_size < 1 || spec.joint_observation_size % (image.size() + 1) != 0) {
    return error(" convolves the images of all agents, but the joint observation has ", spec.joint_observation_size,
                 " elements; expected ", image.size(), " and a presence bit of each agent");
  }
  const int64_t made = spec.ImagesOf(network) * network.Convolved(image).size();
  if (made > space::Space::kMaxElements) {
    return error("'s convolutions make ", made, " numbers of all agents' images; expected at most ",
                 space::Space::kMaxElements);
  }
  return absl::OkStatus();
}

absl::Status ValidateConvLayers(const std::string& whose, const std::vector<ConvLayer>& layers, ImageShape image,
                                const std::string& reads) {
  const auto error = [&](auto&&... parts) { return absl::InvalidArgumentError(absl::StrCat(whose, parts...)); };
  if (layers.empty() || static_cast<int64_t>(layers.size()) > kMaxConvLayers) {
    return error(" has ", layers.size(), " convolutions; expected 1 to ", kMaxConvLayers);
  }
  if (image.size() == 0) {
    return error(" is a CNN, but ", reads, " is no image; expected a Box of [height, width] or [height, width, ",
                 "channels]");
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const ConvLayer& layer = layers[i];
    if (layer.channels < 1 || layer.channels > kMaxConvChannels || layer.kernel < 1 || layer.kernel > kMaxConvExtent ||
        layer.stride < 1 || layer.stride > kMaxConvExtent) {
      return error("'s convolution ", i, " has ", layer.channels, " channels, kernel ", layer.kernel, ", stride ",
                   layer.stride, "; expected 1 to ", kMaxConvChannels, ", 1 to ", kMaxConvExtent, ", 1 to ",
                   kMaxConvExtent);
    }
    const ImageShape made = layer.OutputOf(image);
    if (made.size() == 0) {
      return error("'s convolution ", i, " has a kernel of ", layer.kernel, " x ", layer.kernel,
                   ", but what it reads is ", image.height, " x ", image.width,
                   "; expected a kernel that fits into it");
    }
    if (made.size() > space::Space::kMaxElements) {
      return error("'s convolution ", i, " makes ", made.size(), " numbers of an image; expected at most ",
                   space::Space::kMaxElements);
    }
    image = made;
  }
  return absl::OkStatus();
}

absl::Status CheckImageBytes(const PolicySpec& spec) {
  if (!spec.image_bytes()) return absl::OkStatus();
  if (spec.normalize_observations) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", spec.id.value(),
                     "\": observations are images of bytes, which networks read scaled by their bounds; expected "
                     "normalize_observations: false"));
  }
  if (spec.normalize_state && spec.ByteElements(spec.critic()) > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "policy \"", spec.id.value(),
        "\": the critic reads all agents' images of bytes scaled by their bounds; expected normalize_state: false"));
  }
  for (const NetworkSpec& network : spec.learner_networks) {
    if (!network.Reads(NetworkInput::kObservation) || network.inputs[0] == NetworkInput::kObservation) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("policy \"", spec.id.value(), "\": ", base::LogSafe(network.role, 32),
                     " reads an image of bytes behind another input; expected one that reads the observation first, or "
                     "not at all"));
  }
  return absl::OkStatus();
}

}  // namespace troupe::policy
