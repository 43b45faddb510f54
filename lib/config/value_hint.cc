#include "lib/config/value_hint.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/config/schema.h"
#include "lib/config/yaml_scalars.h"

namespace troupe::config {
namespace {

using google::protobuf::FieldDescriptor;

constexpr size_t kMaxMeant = 64;  // of a value that is read once more for what it may mean

bool IsInteger(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32 || field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;
}

bool IsNumber(const FieldDescriptor& field) {
  return !field.is_repeated() && (IsInteger(field) || field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE);
}

// What was meant, as it is written; empty: who knows.

/// "3" as a number with a unit behind it: 1M is 1000000, 2h of a time 7200.
std::optional<double> WithUnit(std::string text, bool is_time) {
  struct Unit {
    absl::string_view name;
    double factor;
  };
  static constexpr Unit kTimes[] = {{"min", 60}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  static constexpr Unit kCounts[] = {{"k", 1e3}, {"m", 1e6}, {"b", 1e9}, {"g", 1e9}};
  text = absl::AsciiStrToLower(absl::StrReplaceAll(text, {{"_", ""}, {",", ""}, {" ", ""}}));
  double number = 0;
  const auto read = [&](const auto& units) -> std::optional<double> {
    for (const Unit& unit : units) {
      absl::string_view digits = text;
      if (absl::ConsumeSuffix(&digits, unit.name) && absl::SimpleAtod(digits, &number)) return number * unit.factor;
    }
    return std::nullopt;
  };
  if (absl::SimpleAtod(text, &number)) return number;
  return is_time ? read(kTimes) : read(kCounts);
}

std::string NumberMeant(const YAML::Node& node, std::string_view key, const FieldDescriptor& field) {
  if (!node.IsScalar() || node.Scalar().size() > kMaxMeant) return "";
  const v1::KeyRule& rule = RuleOf(field);
  const bool is_time = absl::EndsWith(absl::string_view(key.data(), key.size()), "_s") || field.name() == "wall_clock";
  const std::optional<double> meant = WithUnit(node.Scalar(), is_time);
  if (!meant || !std::isfinite(*meant) || std::abs(*meant) > 1e15 || !InRange(rule, *meant)) return "";
  if (*meant == std::trunc(*meant)) return absl::StrCat(static_cast<int64_t>(*meant));
  return IsInteger(field) ? "" : absl::StrCat(*meant);
}

/// Python's and YAML's words for nothing.
std::string NothingMeant(const YAML::Node& node, const FieldDescriptor& field) {
  const bool nothing = node.IsNull() || (node.IsScalar() && absl::EqualsIgnoreCase(node.Scalar(), "none"));
  if (!nothing) return "";
  const v1::KeyRule& rule = RuleOf(field);
  if (!rule.unset().empty()) return rule.unset();
  return absl::StrContains(rule.help(), "0: no limit") ? "0 for no limit" : "";
}

/// Nothing, where an empty text has a meaning.
std::string EmptyTextMeant(const YAML::Node& node, const FieldDescriptor& field) {
  return node.IsNull() && absl::StrContains(RuleOf(field).help(), "mpty: ")
             ? "\"\" for an empty text, in a shell '\"\"'"
             : "";
}

std::string BoolMeant(const YAML::Node& node) {
  if (!node.IsScalar()) return "";
  const std::string word = absl::AsciiStrToLower(node.Scalar());
  for (const char* yes : {"yes", "on", "y", "1", "true"}) {
    if (word == yes) return "true";
  }
  for (const char* no : {"no", "off", "n", "0", "false", "none"}) {
    if (word == no) return "false";
  }
  return "";
}

/// Algorithms of the peers that are none of ours, though some have one of our names in theirs.
constexpr absl::string_view kNotImplemented[] = {"happo", "hatrpo", "matrpo", "trpo", "appo",  "impala", "dqn", "qmix",
                                                 "vdn",   "sac",    "ddpg",   "td3",  "qtran", "coma",   "pqn", "iql"};

/// The longest of `names` in `text`; nothing where there is none.
template <typename Names>
std::string LongestIn(const std::string& text, const Names& names) {
  std::string longest;
  for (const auto& name : names) {
    if (absl::StrContains(text, name) && name.size() > longest.size()) longest = std::string(name);
  }
  return longest;
}

/// Looks at names of algorithms alone, by whole words: "mappo" has "appo" in it, and "happo" has "ppo".
bool IsNotImplemented(const YAML::Node& node, const FieldDescriptor& field) {
  if (field.enum_type() != v1::AlgorithmName_descriptor() || !node.IsScalar()) return false;
  const std::string got = absl::AsciiStrToLower(node.Scalar());
  return LongestIn(got, kNotImplemented).size() > LongestIn(got, EnumWords(*field.enum_type())).size();
}

/// The peers' names of what there is: MAPPO_Clip, PPOConfig; SwiGLU's kin by their letters.
std::string WordMeant(const YAML::Node& node, const FieldDescriptor& field) {
  if (!node.IsScalar()) return "";
  const std::vector<std::string> words = EnumWords(*field.enum_type());
  const std::string got = absl::AsciiStrToLower(node.Scalar());
  if (field.enum_type() == v1::AlgorithmName_descriptor()) {
    return IsNotImplemented(node, field) ? "" : LongestIn(got, words);
  }
  return base::NearestName(got, words);
}

/// "64,64" and "64" as [64, 64] and [64].
std::string ListMeant(const YAML::Node& node) {
  if (!node.IsScalar() || node.Scalar().size() > kMaxMeant) return "";
  std::vector<std::string> items;
  for (const absl::string_view part : absl::StrSplit(node.Scalar(), absl::ByAnyChar(", x"), absl::SkipEmpty())) {
    int64_t item = 0;
    if (!absl::SimpleAtoi(part, &item)) return "";
    items.emplace_back(part);
  }
  return items.empty() ? "" : absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

std::string MappingMeant(const YAML::Node& node) {
  const bool function =
      node.IsScalar() && (absl::StrContains(node.Scalar(), "lambda") || absl::StrContains(node.Scalar(), "def ") ||
                          absl::StrContains(node.Scalar(), "python:"));
  return function ? "{function: \"python:FILE.py:NAME\"} and the function into that file"
                  : "{AGENT: POLICY, \"*\": POLICY}";
}

std::string Meant(const YAML::Node& node, std::string_view key, const FieldDescriptor& field) {
  if (std::string nothing = NothingMeant(node, field); !nothing.empty()) return nothing;
  switch (FormOf(field)) {
    case KeyForm::kIntegerList:
      return ListMeant(node);
    case KeyForm::kSchedule:
      return NumberMeant(node, key, field);
    case KeyForm::kPolicyMapping:
      return MappingMeant(node);
    case KeyForm::kPolicies:
    case KeyForm::kPoliciesToTrain:
      return node.IsScalar() ? absl::StrCat("[", base::LogSafe(node.Scalar(), kMaxMeant), "]") : "";
    case KeyForm::kArguments:
      return "{NAME: VALUE}";
    case KeyForm::kScalar:
      break;
    default:
      return "";
  }
  if (IsNumber(field)) return NumberMeant(node, key, field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return BoolMeant(node);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return WordMeant(node, field);
  return EmptyTextMeant(node, field);
}

}  // namespace

std::string ValueHint(const YAML::Node& node, std::string_view key, const FieldDescriptor& field) {
  if (IsNotImplemented(node, field)) {
    return absl::StrCat("; ", base::LogSafe(node.Scalar(), kMaxMeant), " is not implemented");
  }
  if (const std::string meant = Meant(node, key, field); !meant.empty()) return absl::StrCat("; write ", meant);
  const std::string& fallback = RuleOf(field).default_();
  return fallback.empty() ? "" : absl::StrCat("; the default is ", fallback);
}

std::string NoReturn(std::string_view text) {
  const std::string shown = base::LogSafe(std::string(text), kMaxMeant);
  const bool is_name = !shown.empty() && !absl::StrContains(shown, ":");
  return absl::StrCat("got \"", shown, "\", expected sum, mean, policy:ID or agent:GLOB",
                      is_name ? absl::StrCat("; write policy:", shown) : "; write sum");
}

std::string SectionHint(const YAML::Node& node, std::string_view section, const google::protobuf::Descriptor& type,
                        const std::vector<std::string>& keys, bool as_override) {
  const std::string name(section);
  const std::string text = node.IsScalar() ? base::LogSafe(node.Scalar(), kMaxMeant) : "";
  const size_t colon = text.find(':');
  const bool is_key = std::find(keys.begin(), keys.end(), text.substr(0, colon)) != keys.end();
  if (colon != std::string::npos && colon + 1 < text.size() && is_key) {
    return absl::StrCat("; YAML wants a space behind the colon: ", text.substr(0, colon), ": ", text.substr(colon + 1));
  }
  const FieldDescriptor* const named = type.FindFieldByName("name");
  if (text.empty() || section.empty() || named == nullptr) {
    return absl::StrCat("; its keys are ", absl::StrJoin(keys, ", "));
  }
  std::string value = text;
  if (named->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    value = WordMeant(node, *named);
    if (value.empty()) value = RuleOf(*named).default_();
  }
  return absl::StrCat("; write ", name,
                      as_override ? absl::StrCat(".name=", value) : absl::StrCat(": {name: ", value, "}"));
}

}  // namespace troupe::config
