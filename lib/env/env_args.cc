#include "lib/env/env_args.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"

namespace troupe::env {
namespace {

/// The value as an error shows it.
struct ValueText {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const { return absl::StrCat(value); }
  std::string operator()(const std::string& value) const { return absl::StrCat("'", base::LogSafe(value), "'"); }
  std::string operator()(const ArgList& value) const { return absl::StrCat("a list of ", value.size()); }
  std::string operator()(const ArgMap&) const { return "a mapping"; }
};

/// `fallback`: what the argument is when it is not given, for the hint; null: there is no single one.
absl::Status WrongValue(std::string_view name, const ArgValue& value, std::string_view expected,
                        const ArgValue& fallback) {
  const bool has_default = !std::holds_alternative<std::monostate>(fallback);
  return absl::InvalidArgumentError(absl::StrCat(
      "argument ", std::string(name), " is ", std::visit(ValueText(), value), ", expected ", std::string(expected),
      has_default ? absl::StrCat("; the default is ", std::visit(ValueText(), fallback)) : ""));
}

/// The argument's value, or nullptr when it was not given; from now on the name is known.
const ArgValue* Find(std::string_view name, const ArgMap& values, std::vector<std::string>& known) {
  known.emplace_back(name);
  return FindArg(values, name);
}

std::string IntegerRange(int64_t low, int64_t high) { return absl::StrCat("an integer in [", low, ", ", high, "]"); }
std::string NumberRange(double low, double high) { return absl::StrCat(" in [", low, ", ", high, "]"); }

/// The value as a double; nullopt when it is no number.
std::optional<double> ToNumber(const ArgValue& value) {
  if (const double* real = std::get_if<double>(&value)) return *real;
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return std::nullopt;
}

/// Length of the lists at each depth, along the first elements.
std::vector<int64_t> LeadingShape(const ArgValue& value) {
  std::vector<int64_t> shape;
  const ArgValue* at = &value;
  while (const ArgList* list = std::get_if<ArgList>(at)) {
    shape.push_back(static_cast<int64_t>(list->size()));
    if (list->empty()) break;
    at = &list->front();
  }
  return shape;
}

/// Reads nested lists of numbers.
struct NumberReader {
  const double low;
  const double high;
  std::vector<double>& values;

  /// "a list of 2 lists of 3 numbers in [0, 1]".
  std::string Expected(absl::Span<const int64_t> shape) const {
    std::string text = shape.empty() ? "a number" : "a list of ";
    for (size_t depth = 0; depth < shape.size(); ++depth) {
      if (shape[depth] != EnvArgs::kAnyLength) absl::StrAppend(&text, shape[depth], " ");
      text += depth + 1 < shape.size() ? "lists of " : "numbers";
    }
    return text + NumberRange(low, high);
  }

  absl::Status Read(const ArgValue& value, const std::string& place, absl::Span<const int64_t> shape) {
    if (shape.empty()) {
      const std::optional<double> number = ToNumber(value);
      if (!number || !(*number >= low && *number <= high))
        return WrongValue(place, value, Expected(shape), std::monostate());
      values.push_back(*number);
      return absl::OkStatus();
    }
    const ArgList* const list = std::get_if<ArgList>(&value);
    if (list == nullptr || list->empty() || static_cast<int64_t>(list->size()) != shape[0]) {
      return WrongValue(place, value, Expected(shape), std::monostate());
    }
    for (size_t i = 0; i < list->size(); ++i) {
      TROUPE_RETURN_IF_ERROR(Read((*list)[i], absl::StrCat(place, "[", i, "]"), shape.subspan(1)));
    }
    return absl::OkStatus();
  }
};

}  // namespace

const ArgValue* FindArg(const ArgMap& values, std::string_view name) {
  const auto found =
      std::find_if(values.begin(), values.end(), [name](const auto& entry) { return entry.first == name; });
  return found == values.end() ? nullptr : &found->second;
}

absl::StatusOr<bool> EnvArgs::GetBool(std::string_view name, bool fallback) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr) return fallback;
  if (const bool* typed = std::get_if<bool>(value)) return *typed;
  return WrongValue(name, *value, "true or false", fallback);
}

absl::StatusOr<int64_t> EnvArgs::GetInt(std::string_view name, int64_t fallback, int64_t low, int64_t high) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr) return fallback;
  const int64_t* typed = std::get_if<int64_t>(value);
  if (typed != nullptr && *typed >= low && *typed <= high) return *typed;
  return WrongValue(name, *value, IntegerRange(low, high), fallback);
}

absl::StatusOr<double> EnvArgs::GetDouble(std::string_view name, double fallback, double low, double high) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr) return fallback;
  const std::optional<double> number = ToNumber(*value);
  if (number && *number >= low && *number <= high) return *number;  // false for NaN
  return WrongValue(name, *value, absl::StrCat("a number", NumberRange(low, high)), fallback);
}

absl::StatusOr<std::string> EnvArgs::GetString(std::string_view name, std::string fallback) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr) return fallback;
  if (const std::string* typed = std::get_if<std::string>(value)) return *typed;
  return WrongValue(name, *value, "a text", fallback);
}

absl::StatusOr<int64_t> EnvArgs::GetOptionalInt(std::string_view name, int64_t low, int64_t high) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr || std::holds_alternative<std::monostate>(*value)) return -1;
  const int64_t* typed = std::get_if<int64_t>(value);
  if (typed != nullptr && *typed >= low && *typed <= high) return *typed;
  return WrongValue(name, *value, absl::StrCat(IntegerRange(low, high), " or null"), std::monostate());
}

absl::StatusOr<NumberTable> EnvArgs::GetNumbers(std::string_view name, NumberTable fallback,
                                                absl::Span<const int64_t> shape, double low, double high) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr) return fallback;
  const std::vector<int64_t> leading = LeadingShape(*value);
  NumberTable table;
  table.shape.assign(shape.begin(), shape.end());
  if (shape.empty()) {
    table.shape = leading.empty() ? std::vector<int64_t>{kAnyLength} : leading;
  }
  for (size_t depth = 0; depth < table.shape.size() && depth < leading.size(); ++depth) {
    if (table.shape[depth] == kAnyLength && leading[depth] > 0) table.shape[depth] = leading[depth];
  }
  NumberReader reader{low, high, table.values};
  TROUPE_RETURN_IF_ERROR(reader.Read(*value, std::string(name), table.shape));
  return table;
}

absl::Status EnvArgs::CheckAllKnown(std::string_view env_name) const {
  for (const auto& [name, value] : values_) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string nearest = base::NearestName(name, known_);
    return absl::InvalidArgumentError(absl::StrCat(
        std::string(env_name), " has no argument '", base::LogSafe(name), "', ",
        known_.empty() ? "it takes none; take it out"
                       : absl::StrCat("expected one of ", absl::StrJoin(known_, ", "),
                                      nearest.empty() ? "; its rows in docs/environments.md say what each is for"
                                                      : absl::StrCat("; did you mean '", nearest, "'?"))));
  }
  return absl::OkStatus();
}

}  // namespace troupe::env
