#include "lib/config/yaml_scalars.h"

#include <cmath>
#include <string>

#include "absl/strings/numbers.h"

namespace troupe::config {
namespace {

constexpr double kMaxExactInteger = 9007199254740992.0;  // 2^53: beyond it a double skips integers

}  // namespace

// Quoted scalars carry YAML's non-specific tag "!".
bool IsPlain(const YAML::Node& node) { return node.IsScalar() && node.Tag() != "!"; }

std::optional<double> ParseDouble(const YAML::Node& node) {
  double value = 0;
  if (!IsPlain(node) || !absl::SimpleAtod(node.Scalar(), &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseInteger(const YAML::Node& node) {
  int64_t value = 0;
  if (IsPlain(node) && absl::SimpleAtoi(node.Scalar(), &value)) return value;
  const std::optional<double> real = ParseDouble(node);
  if (!real || *real != std::trunc(*real) || std::abs(*real) > kMaxExactInteger) return std::nullopt;
  return static_cast<int64_t>(*real);
}

std::optional<bool> ParseBool(const YAML::Node& node) {
  if (!IsPlain(node)) return std::nullopt;
  const std::string& text = node.Scalar();
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  return std::nullopt;
}

bool IsUnsetWord(const YAML::Node& node, const v1::KeyRule& rule) {
  return !rule.unset().empty() && IsPlain(node) && node.Scalar() == rule.unset();
}

}  // namespace troupe::config
