#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/env/env_args.h"
#include <nlohmann/json.hpp>

namespace troupe::env {
namespace {

using nlohmann::json;

/// JSON without a JSON object in between, which would sort mappings or search them for each name.
struct JsonWriter {
  const json::error_handler_t on_bad_utf8;
  std::string* const text;

  void Scalar(const json& value) { text->append(value.dump(-1, ' ', false, on_bad_utf8)); }
  void operator()(std::monostate) { Scalar(nullptr); }
  void operator()(bool value) { Scalar(value); }
  void operator()(int64_t value) { Scalar(value); }
  void operator()(double value) { Scalar(value); }
  void operator()(const std::string& value) { Scalar(value); }
  void operator()(const ArgList& list) {
    const char* comma = "";
    text->append("[");
    for (const ArgValue& value : list) {
      text->append(std::exchange(comma, ","));
      std::visit(*this, value);
    }
    text->append("]");
  }
  void operator()(const ArgMap& map) {
    const char* comma = "";
    text->append("{");
    for (const auto& [name, value] : map) {
      text->append(std::exchange(comma, ","));
      Scalar(name);
      text->append(":");
      std::visit(*this, value);
    }
    text->append("}");
  }
};

/// Text of a scalar that stands alone.
struct ScalarText {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return absl::StrCat(value); }
  std::string operator()(double value) const { return absl::StrCat(value); }
  std::string operator()(const std::string& value) const { return value; }
  template <typename Nested>
  std::string operator()(const Nested& nested) const {
    std::string text;
    JsonWriter{json::error_handler_t::replace, &text}(nested);
    return text;
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
  std::string text;
  JsonWriter write{json::error_handler_t::strict, &text};
  for (const auto& [name, value] : values) {
    if (const double* number = FindNotFinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", base::LogSafe(name), " holds ", *number,
                                                     ", expected finite numbers: JSON has no others"));
    }
    text.append(text.empty() ? "{" : ",");
    try {
      write.Scalar(name);
      text.append(":");
      std::visit(write, value);
    } catch (const json::exception&) {  // the one thing left that dump refuses
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", base::LogSafe(name), " holds a text that is not UTF-8, expected UTF-8"));
    }
  }
  return text.empty() ? "{}" : text + "}";
}

}  // namespace troupe::env
