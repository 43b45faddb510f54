#include "lib/config/schema.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

/// "ALGORITHM_NAME_" for AlgorithmName.
std::string EnumPrefix(const EnumDescriptor& type) {
  std::string prefix;
  for (const char c : type.name()) {
    if (std::isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return prefix + "_";
}

/// The fewest digits that read back as the bound; whole numbers without an exponent.
std::string Bound(double value) {
  char text[40];
  if (value == std::trunc(value) && std::abs(value) < 1e15) {
    std::snprintf(text, sizeof(text), "%.0f", value);
    return text;
  }
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof(text), "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

std::string Range(const v1::KeyRule& rule) {
  // A bound that only keeps arithmetic safe is no news to a person.
  const bool has_max = rule.has_max() && rule.max() < 1e9;
  const bool has_min = rule.has_min() && rule.min() > -1e9;
  if (has_min && has_max) {
    return absl::StrCat(" in ", rule.above_min() ? "(" : "[", Bound(rule.min()), ", ", Bound(rule.max()), "]");
  }
  if (has_min) return absl::StrCat(rule.above_min() ? " > " : " >= ", Bound(rule.min()));
  if (has_max) return absl::StrCat(" <= ", Bound(rule.max()));
  return "";
}

std::string ScalarExpectation(const FieldDescriptor& field) {
  const v1::KeyRule& rule = RuleOf(field);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat("an integer", Range(rule));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat("a number", Range(rule));
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return "a string";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrCat("one of ", absl::StrJoin(EnumWords(*field.enum_type()), ", "));
    default:
      TROUPE_CHECK(false);
  }
}

void CollectKeys(const Descriptor& section, const std::string& prefix, std::vector<std::string>* keys) {
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    const std::string key = JoinKey(prefix, field.name());
    if (IsOptions(field)) {
      CollectKeys(*field.message_type(), prefix, keys);
    } else if (FormOf(field) == KeyForm::kSection) {
      CollectKeys(*field.message_type(), key, keys);
    } else if (std::find(keys->begin(), keys->end(), key) == keys->end()) {
      keys->push_back(key);
    }
  }
}

}  // namespace

KeyForm FormOf(const FieldDescriptor& field) {
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return KeyForm::kScalar;
  const Descriptor* type = field.message_type();
  if (type == v1::IntegerList::descriptor()) return KeyForm::kIntegerList;
  if (type == v1::StringList::descriptor()) return KeyForm::kStringList;
  if (type == v1::ConvFilters::descriptor()) return KeyForm::kConvFilters;
  if (type == v1::LeafEncoders::descriptor()) return KeyForm::kLeafEncoders;
  if (type == v1::Schedule::descriptor()) return KeyForm::kSchedule;
  if (type == v1::Argument::descriptor()) return KeyForm::kArguments;
  if (type == v1::PolicyConfig::descriptor()) return KeyForm::kPolicies;
  if (type == v1::PolicyMapping::descriptor()) return KeyForm::kPolicyMapping;
  if (type == v1::AgentConfig::descriptor()) return KeyForm::kAgents;
  if (type == v1::AgentGroup::descriptor()) return KeyForm::kGroups;
  if (type == v1::RewardClip::descriptor()) return KeyForm::kRange;
  if (type == v1::PoliciesToTrain::descriptor()) return KeyForm::kPoliciesToTrain;
  if (type == v1::ReturnTargets::descriptor()) return KeyForm::kReturnTargets;
  return KeyForm::kSection;
}

bool IsOptions(const FieldDescriptor& field) {
  return field.containing_type() == v1::AlgorithmConfig::descriptor() && field.real_containing_oneof() != nullptr;
}

const v1::KeyRule& RuleOf(const FieldDescriptor& field) { return field.options().GetExtension(v1::rule); }

std::string EnumWord(const EnumValueDescriptor& value) {
  return absl::AsciiStrToLower(value.name().substr(EnumPrefix(*value.type()).size()));
}

std::vector<std::string> EnumWords(const EnumDescriptor& type) {
  std::vector<std::string> words;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) words.push_back(EnumWord(*type.value(i)));
  }
  return words;
}

const EnumValueDescriptor* FindEnumWord(const EnumDescriptor& type, std::string_view word) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0 && EnumWord(*type.value(i)) == word) return type.value(i);
  }
  return nullptr;
}

std::string Expectation(const FieldDescriptor& field) {
  const v1::KeyRule& rule = RuleOf(field);
  std::string text;
  switch (FormOf(field)) {
    case KeyForm::kSection:
      text = "a section (a mapping)";
      break;
    case KeyForm::kScalar:
      text = ScalarExpectation(field);
      break;
    case KeyForm::kIntegerList:
      text = absl::StrCat("a list of 0 to ", rule.max_items(), " integers", Range(rule));
      break;
    case KeyForm::kStringList:
      text = absl::StrCat("a list of 0 to ", rule.max_items(), " strings");
      break;
    case KeyForm::kConvFilters:
      text = absl::StrCat("a list of 1 to ", rule.max_items(), " convolutions, [channels, kernel, stride] each");
      break;
    case KeyForm::kLeafEncoders:
      text = absl::StrCat("a mapping from 1 to ", rule.max_items(),
                          " globs over leaves' names to {hidden_sizes, conv_filters} or flat");
      break;
    case KeyForm::kSchedule:
      text = absl::StrCat("a number", Range(rule), " or a schedule ({initial, final, env_steps})");
      break;
    case KeyForm::kArguments:
      text = "a mapping of names to numbers, strings, booleans, null, and lists and mappings of these";
      break;
    case KeyForm::kPolicies:
      text = "a list of policy ids or a mapping from policy id to overrides";
      break;
    case KeyForm::kPolicyMapping:
      text = "a mapping from globs over agent ids to policy ids (or to {id: weight} or {function: NAME}), or per_agent";
      break;
    case KeyForm::kAgents:
      text = "a mapping from globs over agent ids to overrides";
      break;
    case KeyForm::kGroups:
      text = "a mapping from names of groups to lists of agent ids (or to {agents, obs_space, act_space})";
      break;
    case KeyForm::kRange:
      text = "[low, high] with low <= 0 <= high and low < high, or a number > 0";
      break;
    case KeyForm::kPoliciesToTrain:
      text = "a list of policy ids and {policies, only_against, only_newest, function}, python:MODULE:NAME";
      break;
    case KeyForm::kReturnTargets:
      text = "a number or a mapping from sum, mean, policy:ID and agent:GLOB to numbers";
      break;
  }
  return rule.unset().empty() ? text : absl::StrCat(text, ", or ", rule.unset());
}

bool InRange(const v1::KeyRule& rule, double value) {
  if (rule.has_min() && (rule.above_min() ? value <= rule.min() : value < rule.min())) return false;
  return !rule.has_max() || value <= rule.max();
}

std::string JoinKey(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
}

std::vector<std::string> KeyNames(const Descriptor& section, const FieldDescriptor* options) {
  std::vector<std::string> names;
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    if (!IsOptions(field)) {
      names.push_back(field.name());
    } else if (&field == options) {
      for (const std::string& name : KeyNames(*field.message_type())) names.push_back(name);
    }
  }
  return names;
}

std::vector<const FieldDescriptor*> FieldsOf(const Descriptor& section, std::string_view name) {
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    const FieldDescriptor* const found =
        IsOptions(field) ? field.message_type()->FindFieldByName(std::string(name)) : &field;
    if (found != nullptr && found->name() == name) fields.push_back(found);
  }
  return fields;
}

KeyIn FindKey(const google::protobuf::Message& section, std::string_view name) {
  const google::protobuf::Reflection& reflection = *section.GetReflection();
  for (const FieldDescriptor* const field : FieldsOf(*section.GetDescriptor(), name)) {
    if (field->containing_type() == section.GetDescriptor()) return {&section, field};
    for (int i = 0; i < section.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor& options = *section.GetDescriptor()->field(i);
      const bool has_it = IsOptions(options) && options.message_type() == field->containing_type();
      if (has_it && reflection.HasField(section, &options)) return {&reflection.GetMessage(section, &options), field};
    }
  }
  return {};
}

void CopyField(const google::protobuf::Message& from, const FieldDescriptor& field, google::protobuf::Message* to) {
  const std::unique_ptr<google::protobuf::Message> only(from.New());
  only->CopyFrom(from);
  std::vector<const FieldDescriptor*> set;
  only->GetReflection()->ListFields(*only, &set);
  for (const FieldDescriptor* const other : set) {
    if (other != &field) only->GetReflection()->ClearField(only.get(), other);
  }
  to->GetReflection()->ClearField(to, &field);
  to->MergeFrom(*only);
}

std::vector<std::string> AllKeys() {
  std::vector<std::string> keys;
  CollectKeys(*v1::RunConfig::descriptor(), "", &keys);
  return keys;
}

}  // namespace troupe::config
