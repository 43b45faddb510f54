// YamlLoader's half for model: convolutions and encoders of leaves.

#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/yaml_loader.h"
#include "lib/config/yaml_scalars.h"
#include "lib/policy/convolutions.h"
#include "lib/policy/policy_spec.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

/// A kernel's rows and columns; RLlib writes it [rows, columns], too, and here both are the same.
std::optional<int64_t> ParseKernel(const YAML::Node& node) {
  if (!node.IsSequence()) return ParseInteger(node);
  if (node.size() != 2 || ParseInteger(node[0]) != ParseInteger(node[1])) return std::nullopt;
  return ParseInteger(node[0]);
}

constexpr char kFlat[] = "flat";
constexpr char kAuto[] = "auto";

bool IsIn(const std::optional<int64_t>& value, int64_t max) { return value && *value >= 1 && *value <= max; }

}  // namespace

absl::Status YamlLoader::LoadConvFilters(const YAML::Node& node, const std::string& key, const Field& field,
                                         Message* message) {
  if (!node.IsSequence() || node.size() == 0 || node.size() > static_cast<size_t>(RuleOf(field).max_items())) {
    return WrongValue(node, key, field);
  }
  v1::ConvFilters filters;
  for (const YAML::Node& item : node) {
    if (!item.IsSequence() || item.size() != 3) return WrongValue(item, key, field);
    TROUPE_RETURN_IF_ERROR(LoadConvolution(item, key, filters.add_filters()));
  }
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(filters);
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadConvolution(const YAML::Node& node, const std::string& key, v1::ConvFilter* filter) {
  const bool three = node.IsSequence() && node.size() == 3;
  const std::optional<int64_t> channels = three ? ParseInteger(node[0]) : std::nullopt;
  const std::optional<int64_t> kernel = three ? ParseKernel(node[1]) : std::nullopt;
  const std::optional<int64_t> stride = three ? ParseInteger(node[2]) : std::nullopt;
  if (!IsIn(channels, policy::kMaxConvChannels) || !IsIn(kernel, policy::kMaxConvExtent) ||
      !IsIn(stride, policy::kMaxConvExtent)) {
    return Error(node, absl::StrCat(base::LogSafe(key, 160),
                                    ": got a convolution that is none, expected [channels, kernel, stride] with "
                                    "1 to ",
                                    policy::kMaxConvChannels, " channels, a square kernel of 1 to ",
                                    policy::kMaxConvExtent, " and a stride of 1 to ", policy::kMaxConvExtent));
  }
  filter->set_channels(*channels);
  filter->set_kernel(*kernel);
  filter->set_stride(*stride);
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadLeafEncoders(const YAML::Node& node, const std::string& key, const Field& field,
                                          Message* message) {
  if (!node.IsMap() || node.size() == 0 || node.size() > static_cast<size_t>(RuleOf(field).max_items())) {
    return WrongValue(node, key, field);
  }
  v1::LeafEncoders encoders;
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string glob, NewGlob(entry.first, key, &seen));
    const std::string leaf_key = JoinKey(key, glob);
    places_[leaf_key] = Place(entry.first);
    v1::LeafEncoder* const encoder = encoders.add_encoders();
    encoder->set_leaf(glob);
    TROUPE_RETURN_IF_ERROR(LoadLeafEncoder(entry.second, leaf_key, encoder));
  }
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(encoders);
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadLeafEncoder(const YAML::Node& node, const std::string& key, v1::LeafEncoder* encoder) {
  const std::string shown = base::LogSafe(key, 160);
  if (node.IsScalar() && node.Scalar() == kFlat) {
    encoder->set_flat(true);
    return absl::OkStatus();
  }
  if (!node.IsMap() || node.size() == 0) {
    return Error(node, absl::StrCat(shown, ": got ", Describe(node),
                                    ", expected {hidden_sizes: [...]}, {conv_filters: ...}, both, or ", kFlat));
  }
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string name, EntryName(entry.first, shown, &seen));
    const std::string part = absl::StrCat(shown, ".", name);
    const YAML::Node& value = entry.second;
    if (name == "hidden_sizes") {
      if (!value.IsSequence() || value.size() > policy::kMaxHiddenLayers) {
        return Error(value, absl::StrCat(part, ": got ", Describe(value), ", expected a list of 0 to ",
                                         policy::kMaxHiddenLayers, " integers in [1, ", policy::kMaxLayerSize, "]"));
      }
      v1::IntegerList& sizes = *encoder->mutable_hidden_sizes();
      for (const YAML::Node& item : value) {
        const std::optional<int64_t> size = ParseInteger(item);
        if (!IsIn(size, policy::kMaxLayerSize)) {
          return Error(item, absl::StrCat(part, ": got ", Describe(item), ", expected integers in [1, ",
                                          policy::kMaxLayerSize, "]"));
        }
        sizes.add_values(*size);
      }
    } else if (name == "conv_filters") {
      if (value.IsScalar() && value.Scalar() == kAuto) {
        encoder->set_auto_filters(true);
        continue;
      }
      if (!value.IsSequence() || value.size() == 0 || value.size() > static_cast<size_t>(policy::kMaxConvLayers)) {
        return Error(value,
                     absl::StrCat(part, ": got ", Describe(value), ", expected a list of 1 to ", policy::kMaxConvLayers,
                                  " convolutions, [channels, kernel, stride] each, or ", kAuto));
      }
      for (const YAML::Node& item : value) {
        TROUPE_RETURN_IF_ERROR(LoadConvolution(item, part, encoder->mutable_conv_filters()->add_filters()));
      }
    } else {
      return Error(entry.first, absl::StrCat("unknown key \"", part,
                                             "\"; an encoder of a leaf may have hidden_sizes and conv_filters"));
    }
  }
  return absl::OkStatus();
}

}  // namespace troupe::config
