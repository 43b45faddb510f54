#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::env {

/// One environment argument as configuration gives it; monostate is YAML's null (Python's None).
using ArgValue = std::variant<std::monostate, bool, int64_t, double, std::string>;

/// The value as text: null, true, 3, 0.5, abc.
std::string ArgText(const ArgValue& value);

/// `env.args` of a configuration, read by an environment's factory with types, ranges and a check that nothing is left
/// over. Each getter marks the name as known. Not thread-safe.
class EnvArgs {
 public:
  EnvArgs() = default;
  explicit EnvArgs(std::map<std::string, ArgValue> values) : values_(std::move(values)) {}

  /// The value or, when absent, `fallback`. INVALID_ARGUMENT with what, got and expected for another type or outside
  /// [low, high].
  absl::StatusOr<bool> GetBool(std::string_view name, bool fallback);
  absl::StatusOr<int64_t> GetInt(std::string_view name, int64_t fallback, int64_t low, int64_t high);
  absl::StatusOr<double> GetDouble(std::string_view name, double fallback, double low, double high);
  absl::StatusOr<std::string> GetString(std::string_view name, std::string fallback);
  /// Like GetInt, but absent and null give -1 (Python's None).
  absl::StatusOr<int64_t> GetOptionalInt(std::string_view name, int64_t low, int64_t high);

  /// INVALID_ARGUMENT when an argument was given that no getter asked for; names the nearest one that was.
  absl::Status CheckAllKnown(std::string_view env_name) const;

  const std::map<std::string, ArgValue>& values() const { return values_; }

 private:
  std::map<std::string, ArgValue> values_;
  std::vector<std::string> known_;
};

}  // namespace troupe::env
