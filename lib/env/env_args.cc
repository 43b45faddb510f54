#include "lib/env/env_args.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"

namespace troupe::env {
namespace {

/// The value as YAML would show it.
struct ValueText {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const { return absl::StrCat(value); }
  std::string operator()(const std::string& value) const { return absl::StrCat("'", base::LogSafe(value), "'"); }
};

absl::Status WrongValue(std::string_view name, const ArgValue& value, std::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("argument ", std::string(name), " is ", std::visit(ValueText(), value),
                                                 ", expected ", std::string(expected)));
}

/// The argument's value, or nullptr when it was not given; from now on the name is known.
const ArgValue* Find(std::string_view name, const std::map<std::string, ArgValue>& values,
                     std::vector<std::string>& known) {
  known.emplace_back(name);
  const auto found = values.find(std::string(name));
  return found == values.end() ? nullptr : &found->second;
}

std::string IntegerRange(int64_t low, int64_t high) { return absl::StrCat("an integer in [", low, ", ", high, "]"); }

}  // namespace

std::string ArgText(const ArgValue& value) {
  const std::string* const text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : std::visit(ValueText(), value);
}

absl::StatusOr<bool> EnvArgs::GetBool(std::string_view name, bool fallback) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr) return fallback;
  if (const bool* typed = std::get_if<bool>(value)) return *typed;
  return WrongValue(name, *value, "true or false");
}

absl::StatusOr<int64_t> EnvArgs::GetInt(std::string_view name, int64_t fallback, int64_t low, int64_t high) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr) return fallback;
  const int64_t* typed = std::get_if<int64_t>(value);
  if (typed != nullptr && *typed >= low && *typed <= high) return *typed;
  return WrongValue(name, *value, IntegerRange(low, high));
}

absl::StatusOr<double> EnvArgs::GetDouble(std::string_view name, double fallback, double low, double high) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr) return fallback;
  double number = fallback;
  bool is_number = false;
  if (const double* typed = std::get_if<double>(value)) {
    number = *typed;
    is_number = true;
  } else if (const int64_t* integer = std::get_if<int64_t>(value)) {
    number = static_cast<double>(*integer);
    is_number = true;
  }
  if (is_number && number >= low && number <= high) return number;  // false for NaN
  return WrongValue(name, *value, absl::StrCat("a number in [", low, ", ", high, "]"));
}

absl::StatusOr<std::string> EnvArgs::GetString(std::string_view name, std::string fallback) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr) return fallback;
  if (const std::string* typed = std::get_if<std::string>(value)) return *typed;
  return WrongValue(name, *value, "a text");
}

absl::StatusOr<int64_t> EnvArgs::GetOptionalInt(std::string_view name, int64_t low, int64_t high) {
  const ArgValue* value = Find(name, values_, known_);
  if (value == nullptr || std::holds_alternative<std::monostate>(*value)) return -1;
  const int64_t* typed = std::get_if<int64_t>(value);
  if (typed != nullptr && *typed >= low && *typed <= high) return *typed;
  return WrongValue(name, *value, absl::StrCat(IntegerRange(low, high), " or null"));
}

absl::Status EnvArgs::CheckAllKnown(std::string_view env_name) const {
  for (const auto& [name, value] : values_) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string nearest = base::NearestName(name, known_);
    const std::string hint = !nearest.empty() ? absl::StrCat("did you mean '", nearest, "'?")
                             : known_.empty() ? std::string("it takes none")
                                              : absl::StrCat("expected one of ", absl::StrJoin(known_, ", "));
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(env_name), " has no argument '", base::LogSafe(name), "', ", hint));
  }
  return absl::OkStatus();
}

}  // namespace troupe::env
