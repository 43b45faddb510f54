#include "lib/policy/leaf_encoders.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/convolutions.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/image.h"
#include "lib/space/observation_leaves.h"

namespace troupe::policy {
namespace {

/// What the encoder makes of its leaf, whose sizes are valid.
int64_t MadeBy(const LeafEncoder& encoder, const space::Space& leaf) {
  if (!encoder.hidden_sizes.empty()) return encoder.hidden_sizes.back();
  ImageShape image = space::ImageOf(leaf);
  for (const ConvLayer& layer : encoder.conv_layers) image = layer.OutputOf(image);
  return image.size();
}

}  // namespace

std::string LeavesText(const NetworkSpec& network) {
  return absl::StrCat("{",
                      absl::StrJoin(network.leaf_encoders, ", ",
                                    [](std::string* out, const LeafEncoder& encoder) {
                                      absl::StrAppend(out, encoder.leaf, ": ", ConvLayersText(encoder.conv_layers),
                                                      " [", absl::StrJoin(encoder.hidden_sizes, ", "), "]");
                                    }),
                      "}");
}

std::vector<ObservationPart> ObservationParts(const PolicySpec& spec, const NetworkSpec& network) {
  const std::vector<space::ObservationLeaf> leaves = space::ObservationLeaves(spec.observation_space);
  std::vector<ObservationPart> parts;
  size_t next = 0;  // of the encoders
  for (size_t i = 0; i < leaves.size(); ++i) {
    const space::ObservationLeaf& leaf = leaves[i];
    const int64_t size = leaf.space.flat_size();
    const bool encoded =
        next < network.leaf_encoders.size() && network.leaf_encoders[next].leaf == static_cast<int64_t>(i);
    if (!encoded) {
      if (parts.empty() || parts.back().encoder != nullptr) parts.push_back({.first = leaf.first});
      parts.back().size += size;
      parts.back().made += size;
      continue;
    }
    const LeafEncoder& encoder = network.leaf_encoders[next];
    ObservationPart part{.first = leaf.first, .size = size, .encoder = &encoder};
    if (!encoder.conv_layers.empty()) part.image = space::ImageOf(leaf.space);
    part.divided =
        spec.bytes_by_255 && leaf.space.flat_dtype() == tensor::DType::kUint8 && !spec.normalize_observations;
    part.made = MadeBy(encoder, leaf.space);
    part.stem = absl::StrCat("leaf.", i, ".");
    parts.push_back(std::move(part));
    ++next;
  }
  return parts;
}

int64_t EncodedObservationSize(const PolicySpec& spec, const NetworkSpec& network) {
  switch (network.encoder) {  // a kind that is added does not compile before its size is known
    case EncoderKind::kMlp:
    case EncoderKind::kAttention:    // which reads all agents' observations
    case EncoderKind::kTorchScript:  // which has no layers of ours
    case EncoderKind::kShared:       // which reads what the actor's makes
      break;
    case EncoderKind::kCnn:
      return network.Convolved(spec.image()).size();
    case EncoderKind::kLeaves: {
      int64_t size = 0;
      for (const ObservationPart& part : ObservationParts(spec, network)) size += part.made;
      return size;
    }
  }
  return spec.observation_size();
}

absl::Status ValidateLeafEncoders(const PolicyId& id, const NetworkSpec& network, const space::Space& observation) {
  const std::string whose = absl::StrCat("policy \"", id.value(), "\": ", base::LogSafe(network.role, 32));
  const auto error = [](auto&&... parts) { return absl::InvalidArgumentError(absl::StrCat(parts...)); };
  const std::vector<LeafEncoder>& encoders = network.leaf_encoders;
  if (network.encoder != EncoderKind::kLeaves) {
    if (encoders.empty()) return absl::OkStatus();
    return error(whose, " has encoders of leaves, ", encoders.size(), ", but its own is of another kind; expected 0");
  }
  if (encoders.empty() || encoders.size() > kMaxLeafEncoders) {
    return error(whose, " has ", encoders.size(), " encoders of leaves; expected 1 to ", kMaxLeafEncoders);
  }
  if (network.inputs.empty() || network.inputs[0] != NetworkInput::kObservation) {
    return error(whose, " has encoders of leaves and reads ",
                 network.inputs.empty() ? "nothing" : std::string(NetworkInputName(network.inputs[0])),
                 "; expected one whose first input is the observation");
  }
  if (observation.kind() != space::SpaceKind::kDict && observation.kind() != space::SpaceKind::kTuple) {
    return error(whose, " has encoders of leaves, but the observation has none; expected a Dict or a Tuple");
  }
  const std::vector<space::ObservationLeaf> leaves = space::ObservationLeaves(observation);
  int64_t least = 0;
  int64_t size = observation.flat_size();
  for (const LeafEncoder& encoder : encoders) {
    if (encoder.leaf < least || encoder.leaf >= static_cast<int64_t>(leaves.size())) {
      return error(whose, " has an encoder of leaf ", encoder.leaf, "; expected one of ", leaves.size(),
                   " leaves, numbered from 0, in their order and each once");
    }
    least = encoder.leaf + 1;
    const space::ObservationLeaf& leaf = leaves[static_cast<size_t>(encoder.leaf)];
    const std::string name = absl::StrCat(whose, "'s encoder of leaf ", encoder.leaf);
    if (encoder.conv_layers.empty() && encoder.hidden_sizes.empty()) {
      return error(name, " has no layers; expected convolutions or 1 to ", kMaxHiddenLayers, " hidden layers");
    }
    if (encoder.hidden_sizes.size() > kMaxHiddenLayers) {
      return error(name, " has ", encoder.hidden_sizes.size(), " hidden layers; expected 0 to ", kMaxHiddenLayers);
    }
    for (const int64_t units : encoder.hidden_sizes) {
      if (units >= 1 && units <= kMaxLayerSize) continue;
      return error(name, " has a hidden layer of ", units, " units; expected 1 to ", kMaxLayerSize);
    }
    if (!encoder.conv_layers.empty()) {
      TROUPE_RETURN_IF_ERROR(
          ValidateConvLayers(name, encoder.conv_layers, space::ImageOf(leaf.space), leaf.space.ToString()));
    }
    size += MadeBy(encoder, leaf.space) - leaf.space.flat_size();
  }
  if (size <= space::Space::kMaxElements) return absl::OkStatus();
  return error(whose, "'s encoders make ", size, " numbers of an observation; expected at most ",
               space::Space::kMaxElements);
}

}  // namespace troupe::policy
