#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/env/env_args.h"
#include <nlohmann/json.hpp>

namespace troupe::env {
namespace {

using Json = nlohmann::json;

Json ToJson(const ArgValue& value);

struct JsonValue {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(bool value) const { return value; }
  Json operator()(int64_t value) const { return value; }
  Json operator()(double value) const { return value; }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const ArgList& list) const {
    Json json = Json::array();
    for (const ArgValue& value : list) json.push_back(ToJson(value));
    return json;
  }
  Json operator()(const ArgMap& map) const {
    Json json = Json::object();
    for (const auto& [name, value] : map) json[name] = ToJson(value);
    return json;
  }
};

Json ToJson(const ArgValue& value) { return std::visit(JsonValue(), value); }

/// Text of a scalar that stands alone.
struct ScalarText {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const { return absl::StrCat(value); }
  std::string operator()(const std::string& value) const { return value; }
  template <typename Nested>
  std::string operator()(const Nested& nested) const {
    return JsonValue()(nested).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
};

/// The first number in the value that is not finite; nullptr: none.
const double* FindNotFinite(const ArgValue& value) {
  if (const double* real = std::get_if<double>(&value)) return std::isfinite(*real) ? nullptr : real;
  if (const ArgList* list = std::get_if<ArgList>(&value)) {
    for (const ArgValue& item : *list) {
      if (const double* found = FindNotFinite(item)) return found;
    }
  }
  if (const ArgMap* map = std::get_if<ArgMap>(&value)) {
    for (const auto& [name, item] : *map) {
      if (const double* found = FindNotFinite(item)) return found;
    }
  }
  return nullptr;
}

}  // namespace

std::string ArgText(const ArgValue& value) { return std::visit(ScalarText(), value); }

absl::StatusOr<std::string> ArgsJson(const ArgMap& values) {
  std::string text = "{";
  for (const auto& [name, value] : values) {
    if (const double* number = FindNotFinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", base::LogSafe(name), " holds ", *number,
                                                     ", expected finite numbers: JSON has no others"));
    }
    try {
      absl::StrAppend(&text, text.size() > 1 ? "," : "", Json(name).dump(), ":", ToJson(value).dump());
    } catch (const Json::exception&) {  // the one thing left that dump refuses
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", base::LogSafe(name), " holds a text that is not UTF-8, expected UTF-8"));
    }
  }
  return text + "}";
}

}  // namespace troupe::env
