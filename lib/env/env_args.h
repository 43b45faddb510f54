#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace troupe::env {

struct ArgValue;
using ArgList = std::vector<ArgValue>;
/// A mapping in the order in which it was written; no name is there twice. FindArg looks a name up.
using ArgMap = std::vector<std::pair<std::string, ArgValue>>;

/// One environment argument as configuration gives it, a list or mapping of such values among them; monostate is YAML's
/// null (Python's None). Used as the variant that it is (std::get_if, std::visit).
struct ArgValue : std::variant<std::monostate, bool, int64_t, double, std::string, ArgList, ArgMap> {
  using variant::variant;
};

/// The value of that name; nullptr: there is none. Goes through the entries one by one.
const ArgValue* FindArg(const ArgMap& values, std::string_view name);

/// The value as text: null, true, 3, 0.5, abc; a list or mapping as compact JSON, [1,[2.5,"abc"]] or {"a":null}, in
/// which null stands for a number that is not finite, and U+FFFD for bytes that are not UTF-8.
std::string ArgText(const ArgValue& value);

/// The arguments as one JSON object in their order, for another process or language to read: integers and strings
/// exactly, reals with the digits that read back as the same double and always with a point or an exponent.
/// INVALID_ARGUMENT names the argument that JSON cannot hold: a number that is not finite, a text that is not UTF-8.
absl::StatusOr<std::string> ArgsJson(const ArgMap& values);

/// Numbers from nested lists, in the order they are written.
struct NumberTable {
  std::vector<int64_t> shape;  ///< length of the lists at each depth
  std::vector<double> values;  ///< row-major
};

/// `env.args` of a configuration, read by an environment's factory with types, ranges and a check that nothing is left
/// over. Each getter marks the name as known. Not thread-safe.
class EnvArgs {
 public:
  /// In a shape: lists of any length from 1, all equally long.
  static constexpr int64_t kAnyLength = -1;

  EnvArgs() = default;
  explicit EnvArgs(ArgMap values) : values_(std::move(values)) {}

  /// The value or, when absent, `fallback`. INVALID_ARGUMENT with what, got and expected for another type or outside
  /// [low, high].
  absl::StatusOr<bool> GetBool(std::string_view name, bool fallback);
  absl::StatusOr<int64_t> GetInt(std::string_view name, int64_t fallback, int64_t low, int64_t high);
  absl::StatusOr<double> GetDouble(std::string_view name, double fallback, double low, double high);
  absl::StatusOr<std::string> GetString(std::string_view name, std::string fallback);
  /// Like GetInt, but absent and null give -1 (Python's None).
  absl::StatusOr<int64_t> GetOptionalInt(std::string_view name, int64_t low, int64_t high);
  /// Numbers in [low, high] in lists nested as `shape` says, as {2, kAnyLength} for two equally long rows; an empty
  /// shape takes any depth from 1. The error names the element, as payoffs[0][1].
  absl::StatusOr<NumberTable> GetNumbers(std::string_view name, NumberTable fallback, absl::Span<const int64_t> shape,
                                         double low, double high);

  /// INVALID_ARGUMENT when an argument was given that no getter asked for; names the nearest one that was.
  absl::Status CheckAllKnown(std::string_view env_name) const;

  const ArgMap& values() const { return values_; }

 private:
  ArgMap values_;
  std::vector<std::string> known_;
};

}  // namespace troupe::env
