// YamlLoader's half for model: convolutions.

#include <optional>

#include "absl/strings/str_cat.h"
#include "lib/config/yaml_loader.h"
#include "lib/config/yaml_scalars.h"
#include "lib/policy/convolutions.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

/// A kernel's rows and columns; RLlib writes it [rows, columns], too, and here both are the same.
std::optional<int64_t> ParseKernel(const YAML::Node& node) {
  if (!node.IsSequence()) return ParseInteger(node);
  if (node.size() != 2 || ParseInteger(node[0]) != ParseInteger(node[1])) return std::nullopt;
  return ParseInteger(node[0]);
}

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
    const std::optional<int64_t> channels = ParseInteger(item[0]);
    const std::optional<int64_t> kernel = ParseKernel(item[1]);
    const std::optional<int64_t> stride = ParseInteger(item[2]);
    if (!IsIn(channels, policy::kMaxConvChannels) || !IsIn(kernel, policy::kMaxConvExtent) ||
        !IsIn(stride, policy::kMaxConvExtent)) {
      return Error(item, absl::StrCat(key,
                                      ": got a convolution that is none, expected [channels, kernel, stride] with "
                                      "1 to ",
                                      policy::kMaxConvChannels, " channels, a square kernel of 1 to ",
                                      policy::kMaxConvExtent, " and a stride of 1 to ", policy::kMaxConvExtent));
    }
    v1::ConvFilter& filter = *filters.add_filters();
    filter.set_channels(*channels);
    filter.set_kernel(*kernel);
    filter.set_stride(*stride);
  }
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(filters);
  return absl::OkStatus();
}

}  // namespace troupe::config
