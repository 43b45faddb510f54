#include "lib/config/leaf_networks.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/config/image_networks.h"
#include "lib/config/overrides.h"
#include "lib/config/schema.h"
#include "lib/policy/convolutions.h"
#include "lib/policy/leaf_encoders.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/image.h"
#include "lib/space/observation_leaves.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

using policy::LeafEncoder;
using policy::PolicySpec;
using space::ObservationLeaf;

constexpr size_t kLeavesShown = 8;
constexpr size_t kLeafBytesShown = 64;

/// What a configuration says of the leaves of a policy.
class LeafSettings {
 public:
  LeafSettings(const RunConfig& config, const SettingsOf& of, const PolicySpec& spec)
      : config_(config),
        of_(of),
        model_(ModelOf(config, of)),
        leaves_(space::ObservationLeaves(spec.observation_space)),
        names_(space::ObservationLeafNames(spec.observation_space)),
        whose_(absl::StrCat("policy \"", spec.id.value(), "\"")) {}

  /// Every glob is the first one that matches some leaf.
  absl::Status CheckGlobs() const {
    for (const v1::LeafEncoder& entry : model_.leaf_encoders().encoders()) {
      const v1::LeafEncoder* before = nullptr;  // that takes a leaf which this one matches, too
      bool has_effect = false;
      for (const std::string& name : names_) {
        if (!policy::GlobMatches(entry.leaf(), name)) continue;
        const v1::LeafEncoder* const first = EntryOf(name);
        has_effect = has_effect || first == &entry;
        before = first;
      }
      if (has_effect) continue;
      if (before != nullptr) {
        return Error(KeyOf(entry),
                     absl::StrCat("got a glob behind \"", base::LogSafe(before->leaf(), kLeafBytesShown),
                                  "\", which takes every leaf of ", whose_, " that it matches; expected it before"));
      }
      std::vector<std::string> names;
      for (const std::string& name : names_) names.push_back(base::LogSafe(name, kLeafBytesShown));
      const std::string nearest = base::NearestName(entry.leaf(), names);
      return Error(KeyOf(entry), absl::StrCat("got an encoder of no leaf of ", whose_, "; ",
                                              nearest.empty() ? "these are " + base::FewOf(names, kLeavesShown)
                                                              : absl::StrCat("the nearest is \"", nearest, "\"")));
    }
    return absl::OkStatus();
  }

  /// In the order of their leaves.
  absl::StatusOr<std::vector<LeafEncoder>> Encoders() const {
    std::vector<LeafEncoder> encoders;
    for (size_t i = 0; i < leaves_.size(); ++i) {
      const v1::LeafEncoder* const entry = EntryOf(names_[i]);
      if (entry != nullptr && entry->flat()) continue;
      LeafEncoder encoder{.leaf = static_cast<int64_t>(i)};
      if (entry != nullptr) {
        encoder.hidden_sizes.assign(entry->hidden_sizes().values().begin(), entry->hidden_sizes().values().end());
      }
      TROUPE_ASSIGN_OR_RETURN(encoder.conv_layers, ConvolutionsOf(i, entry));
      if (encoder.conv_layers.empty() && encoder.hidden_sizes.empty()) {
        if (entry == nullptr) continue;
        return Error(KeyOf(*entry),
                     absl::StrCat("got no layers, but ", NameOf(i), " is ", leaves_[i].space.ToString(),
                                  "; expected hidden_sizes of 1 to ", policy::kMaxHiddenLayers, " layers, or flat"));
      }
      encoders.push_back(std::move(encoder));
    }
    if (encoders.size() > policy::kMaxLeafEncoders) {
      return Error(ModelKey(config_, of_, model_.has_leaf_encoders() ? "leaf_encoders" : "encoder"),
                   absl::StrCat("got encoders of ", encoders.size(), " leaves of ", whose_, ", expected at most ",
                                policy::kMaxLeafEncoders, "; LEAF: flat leaves one without"));
    }
    return encoders;
  }

  /// An error where convolutions were asked for and no leaf has any.
  absl::Status CheckConvolutionsAreUsed(const std::vector<LeafEncoder>& encoders) const {
    const bool wanted =
        model_.encoder() == v1::ENCODER_CNN || (model_.encoder() == v1::ENCODER_AUTO && model_.has_conv_filters());
    const bool used = std::any_of(encoders.begin(), encoders.end(),
                                  [](const LeafEncoder& encoder) { return !encoder.conv_layers.empty(); });
    if (!wanted || used) return absl::OkStatus();
    const bool cnn = model_.encoder() == v1::ENCODER_CNN;
    return Error(ModelKey(config_, of_, cnn ? "encoder" : "conv_filters"),
                 absl::StrCat(cnn ? "got cnn" : "got convolutions", ", but no leaf that ", whose_, " observes is ",
                              cnn ? "an image, a Box of [height, width, channels] or [height, width]"
                                  : "a uint8 image of at least 10 by 10 pixels",
                              "; expected one, conv_filters of a leaf in model.leaf_encoders, or model.encoder: mlp"));
  }

  absl::Status Error(const std::string& key, const std::string& text) const { return config_.KeyError(key, text); }
  std::string Key() const { return ModelKey(config_, of_, "leaf_encoders"); }

 private:
  std::string NameOf(size_t leaf) const {
    return absl::StrCat(whose_, "'s leaf \"", base::LogSafe(names_[leaf], kLeafBytesShown), "\"");
  }
  std::string KeyOf(const v1::LeafEncoder& entry) const { return JoinKey(Key(), entry.leaf()); }

  /// nullptr: none that matches.
  const v1::LeafEncoder* EntryOf(const std::string& leaf) const {
    for (const v1::LeafEncoder& entry : model_.leaf_encoders().encoders()) {
      if (policy::GlobMatches(entry.leaf(), leaf)) return &entry;
    }
    return nullptr;
  }

  absl::StatusOr<std::vector<policy::ConvLayer>> ConvolutionsOf(size_t number, const v1::LeafEncoder* entry) const {
    const ObservationLeaf& leaf = leaves_[number];
    const policy::ImageShape image = space::ImageOf(leaf.space);
    const bool own = entry != nullptr && (entry->has_conv_filters() || entry->auto_filters());
    const bool by_encoder = model_.encoder() == v1::ENCODER_CNN    ? image.size() > 0
                            : model_.encoder() == v1::ENCODER_AUTO ? ConvolvesUnasked(model_, leaf.space)
                                                                   : false;
    if (!own && !by_encoder) return std::vector<policy::ConvLayer>();
    const bool listed = own && entry->has_conv_filters();
    const std::string key = own ? KeyOf(*entry) : ModelKey(config_, of_, "conv_filters");
    const std::string name = NameOf(number);
    if (image.size() == 0) {
      return Error(key, absl::StrCat("got convolutions, but ", name, " is ", leaf.space.ToString(),
                                     "; expected an image, a Box of [height, width, channels] or [height, width]"));
    }
    std::vector<policy::ConvLayer> layers = ConvLayersOf(listed ? entry->conv_filters() : model_.conv_filters());
    if (layers.empty()) layers = ConvLayersFor(image);
    if (layers.empty()) {
      return Error(key, absl::StrCat("got auto, but ", name, " is ", leaf.space.ToString(),
                                     "; expected [[channels, kernel, stride], ...] for so small an image, or flat in "
                                     "model.leaf_encoders"));
    }
    if (const absl::Status fits = policy::ValidateConvLayers(name, layers, image); !fits.ok()) {
      return Error(key, std::string(fits.message()));
    }
    return layers;
  }

  const RunConfig& config_;
  const SettingsOf& of_;
  const v1::ModelConfig model_;
  const std::vector<ObservationLeaf> leaves_;
  const std::vector<std::string> names_;  ///< of each
  const std::string whose_;
};

}  // namespace

absl::Status SetLeafEncoders(const RunConfig& config, const SettingsOf& of, PolicySpec* spec) {
  const LeafSettings settings(config, of, *spec);
  const space::SpaceKind kind = spec->observation_space.kind();
  if (kind != space::SpaceKind::kDict && kind != space::SpaceKind::kTuple) {
    return settings.Error(settings.Key(),
                          absl::StrCat("got encoders of leaves, but policy \"", spec->id.value(), "\" observes ",
                                       spec->observation_space.ToString(),
                                       "; expected a Dict or a Tuple, or auto, with model.encoder for the whole"));
  }
  TROUPE_RETURN_IF_ERROR(settings.CheckGlobs());
  TROUPE_ASSIGN_OR_RETURN(const std::vector<LeafEncoder> encoders, settings.Encoders());
  TROUPE_RETURN_IF_ERROR(settings.CheckConvolutionsAreUsed(encoders));
  if (encoders.empty()) return absl::OkStatus();
  for (policy::NetworkSpec* const network : {&spec->actor, spec->mutable_critic()}) {
    const bool flat = network != &spec->actor && ModelOf(config, of).critic_encoder() == v1::CRITIC_ENCODER_MLP;
    if (!ReadsOwnObservation(*network) || flat) continue;
    network->encoder = policy::EncoderKind::kLeaves;
    network->leaf_encoders = encoders;
    if (const absl::Status valid = policy::ValidateLeafEncoders(spec->id, *network, spec->observation_space);
        !valid.ok()) {
      return settings.Error(settings.Key(), std::string(valid.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace troupe::config
