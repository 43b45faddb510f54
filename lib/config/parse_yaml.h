#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include <yaml-cpp/yaml.h>

namespace troupe::config {

/// Bounds of a YAML text. Nodes count as often as aliases repeat them, since whoever walks the document meets them so
/// often.
constexpr int kMaxYamlDepth = 64;
constexpr int64_t kMaxYamlNodes = 200'000;

/// The one document of a YAML text; a null node where there is none. INVALID_ARGUMENT, with line and column behind
/// `place` if `with_mark`: no YAML, a second document, deeper or larger than the bounds, an alias inside of what it
/// stands for. yaml-cpp throws, and for some texts never ends; this does neither.
absl::StatusOr<YAML::Node> ParseYaml(const std::string& text, const std::string& place, bool with_mark);

}  // namespace troupe::config
