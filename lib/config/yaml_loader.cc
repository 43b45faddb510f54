#include "lib/config/yaml_loader.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithms.h"
#include "lib/config/foreign_keys.h"
#include "lib/config/value_hint.h"
#include "lib/config/yaml_scalars.h"
#include "lib/learner/score.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

}  // namespace

std::string Describe(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar: {
      const std::string text = base::LogSafe(node.Scalar(), 64);
      return ParseDouble(node) || ParseBool(node) ? text : absl::StrCat("\"", text, "\"");
    }
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a mapping";
    default:
      return "nothing";
  }
}

std::string YamlLoader::Place(const YAML::Node& node) const {
  if (!fixed_place_.empty()) return fixed_place_;
  if (node.IsNull() && !key_place_.empty()) return key_place_;  // yaml-cpp gives what is not there no place
  return absl::StrCat(source_, ":", node.Mark().line + 1, ":", node.Mark().column + 1);
}

absl::Status YamlLoader::Error(const YAML::Node& node, const std::string& text) const {
  return absl::InvalidArgumentError(absl::StrCat(Place(node), ": ", text));
}

absl::Status YamlLoader::WrongValue(const YAML::Node& node, const std::string& key, const Field& field) const {
  return Error(node, absl::StrCat(key, ": got ", Describe(node), ", expected ", Expectation(field),
                                  ValueHint(node, key, field)));
}

absl::StatusOr<std::string> YamlLoader::EntryName(const YAML::Node& name, const std::string& section, Seen* seen) {
  key_place_ = Place(name);
  const std::string in = section.empty() ? "" : absl::StrCat(" in ", section);
  if (!name.IsScalar() || name.Scalar().empty()) {
    return Error(name, absl::StrCat("got ", Describe(name), " as a key", in, ", expected a name"));
  }
  if (!seen->emplace(name.Scalar(), true).second) {
    return Error(name, absl::StrCat("key \"", base::LogSafe(JoinKey(section, name.Scalar())),
                                    "\" is there twice, expected once; take one of them out"));
  }
  return name.Scalar();
}

absl::Status YamlLoader::Load(const YAML::Node& node, v1::RunConfig* config) { return LoadSection(node, "", config); }

absl::StatusOr<YamlLoader::Target> YamlLoader::FindTarget(const YAML::Node& entry, const std::string& section,
                                                          Message* message) const {
  const std::string& name = entry.Scalar();
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  const FieldDescriptor* const own = type.FindFieldByName(name);
  if (own != nullptr && !IsOptions(*own)) return Target{own, message};
  const std::string key = base::LogSafe(JoinKey(section, name), 160);
  const auto unknown = [&](const FieldDescriptor* options) {
    return Error(entry, absl::StrCat("unknown key \"", base::LogSafe(key, 128), "\"",
                                     UnknownKeyHint(section, name, KeyNames(type, options))));
  };
  if (&type != v1::AlgorithmConfig::descriptor()) return unknown(nullptr);
  const FieldDescriptor& options = names_.OptionsOf(section);
  if (const FieldDescriptor* const option = FindOption(options, name); option != nullptr) {
    return Target{option, MutableOptions(options, static_cast<v1::AlgorithmConfig*>(message))};
  }
  if (FieldsOf(type, name).empty() || own != nullptr) return unknown(&options);
  const AlgorithmNames::InForce in_force = names_.Of(section);
  return Error(entry, absl::StrCat(key, " ", OfAnotherAlgorithm(name, in_force.name, in_force.key)));
}

absl::Status YamlLoader::LoadSection(const YAML::Node& node, const std::string& section, Message* message) {
  if (node.IsNull()) return absl::OkStatus();  // "model:" with nothing below it
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  const bool is_algorithm = &type == v1::AlgorithmConfig::descriptor();
  if (!node.IsMap()) {
    const std::vector<std::string> keys = KeyNames(type, is_algorithm ? &names_.OptionsOf(section) : nullptr);
    return Error(node, absl::StrCat(section.empty() ? "the configuration" : section, ": got ", Describe(node),
                                    ", expected a section (a mapping)",
                                    SectionHint(node, section, type, keys, !fixed_place_.empty())));
  }
  // Of which keys there are the name decides: one that is none is said before them.
  if (const YAML::Node name = node["name"]; is_algorithm && name.IsDefined() && name.IsScalar()) {
    TROUPE_RETURN_IF_ERROR(LoadKey(name, JoinKey(section, "name"), *type.FindFieldByName("name"), message));
  }
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string name, EntryName(entry.first, section, &seen));
    const std::string key = JoinKey(section, name);
    TROUPE_ASSIGN_OR_RETURN(const Target target, FindTarget(entry.first, section, message));
    // An override places the keys it sets, not the sections around them.
    const KeyForm form = FormOf(*target.field);
    const bool is_group = form == KeyForm::kSection || form == KeyForm::kArguments || form == KeyForm::kPolicies ||
                          form == KeyForm::kAgents || form == KeyForm::kGroups;
    if (fixed_place_.empty() || !is_group) places_[key] = Place(entry.second);
    TROUPE_RETURN_IF_ERROR(LoadKey(entry.second, key, *target.field, target.message));
  }
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadKey(const YAML::Node& node, const std::string& key, const Field& field, Message* message) {
  if (IsUnsetWord(node, RuleOf(field))) {
    message->GetReflection()->ClearField(message, &field);
    return absl::OkStatus();
  }
  switch (FormOf(field)) {
    case KeyForm::kSection:
      return LoadSection(node, key, message->GetReflection()->MutableMessage(message, &field));
    case KeyForm::kScalar:
      return LoadScalar(node, key, field, message);
    case KeyForm::kIntegerList:
      return LoadIntegerList(node, key, field, message);
    case KeyForm::kStringList:
      return LoadStringList(node, key, field, message);
    case KeyForm::kConvFilters:
      return LoadConvFilters(node, key, field, message);
    case KeyForm::kLeafEncoders:
      return LoadLeafEncoders(node, key, field, message);
    case KeyForm::kSchedule:
      return LoadSchedule(node, key, field, message);
    case KeyForm::kArguments:
      return LoadArguments(node, key, field, message);
    case KeyForm::kPolicies:
      return LoadPolicies(node, key, field, message);
    case KeyForm::kPolicyMapping:
      return LoadPolicyMapping(node, key, field, message);
    case KeyForm::kAgents:
      return LoadAgents(node, key, field, message);
    case KeyForm::kGroups:
      return LoadGroups(node, key, field, message);
    case KeyForm::kRange:
      return LoadRange(node, key, field, message);
    case KeyForm::kPoliciesToTrain:
      return LoadPoliciesToTrain(node, key, field, message);
    case KeyForm::kReturnTargets:
      return LoadReturnTargets(node, key, field, message);
  }
  TROUPE_CHECK(false);
}

absl::Status YamlLoader::LoadScalar(const YAML::Node& node, const std::string& key, const Field& field,
                                    Message* message) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  const v1::KeyRule& rule = RuleOf(field);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64: {
      const std::optional<int64_t> value = ParseInteger(node);
      if (!value || !InRange(rule, static_cast<double>(*value))) return WrongValue(node, key, field);
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        reflection.SetInt64(message, &field, *value);
      } else {
        reflection.SetInt32(message, &field, static_cast<int32_t>(*value));  // the rule's range is inside
      }
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const std::optional<double> value = ParseDouble(node);
      if (!value || !InRange(rule, *value)) return WrongValue(node, key, field);
      reflection.SetDouble(message, &field, *value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const std::optional<bool> value = ParseBool(node);
      if (!value) return WrongValue(node, key, field);
      reflection.SetBool(message, &field, *value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      if (!node.IsScalar()) return WrongValue(node, key, field);
      reflection.SetString(message, &field, node.Scalar());
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const google::protobuf::EnumValueDescriptor* value =
          node.IsScalar() ? FindEnumWord(*field.enum_type(), node.Scalar()) : nullptr;
      if (value == nullptr) return WrongValue(node, key, field);
      reflection.SetEnum(message, &field, value);
      return absl::OkStatus();
    }
    default:
      TROUPE_CHECK(false);
  }
}

absl::Status YamlLoader::LoadIntegerList(const YAML::Node& node, const std::string& key, const Field& field,
                                         Message* message) {
  const v1::KeyRule& rule = RuleOf(field);
  if (!node.IsSequence() || node.size() > static_cast<size_t>(rule.max_items())) return WrongValue(node, key, field);
  v1::IntegerList list;
  for (const YAML::Node& item : node) {
    const std::optional<int64_t> value = ParseInteger(item);
    if (!value || !InRange(rule, static_cast<double>(*value))) return WrongValue(item, key, field);
    list.add_values(*value);
  }
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(list);
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadStringList(const YAML::Node& node, const std::string& key, const Field& field,
                                        Message* message) {
  constexpr size_t kMaxBytes = 256;  // of each
  if (!node.IsSequence() || node.size() > static_cast<size_t>(RuleOf(field).max_items())) {
    return WrongValue(node, key, field);
  }
  v1::StringList list;
  for (const YAML::Node& item : node) {
    if (!item.IsScalar() || item.Scalar().empty() || item.Scalar().size() > kMaxBytes) {
      return Error(item,
                   absl::StrCat(key, ": got ", Describe(item), ", expected a string of 1 to ", kMaxBytes, " bytes"));
    }
    list.add_values(item.Scalar());
  }
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(list);
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadReturnTargets(const YAML::Node& node, const std::string& key, const Field& field,
                                           Message* message) {
  const v1::KeyRule& rule = RuleOf(field);
  v1::ReturnTargets targets;
  const auto add = [&](const std::string& score, const YAML::Node& value, const std::string& value_key) {
    const std::optional<double> at_least = ParseDouble(value);
    if (!at_least || !InRange(rule, *at_least)) {
      return node.IsMap() ? Error(value, absl::StrCat(base::LogSafe(value_key, 160), ": got ", Describe(value),
                                                      ", expected a number"))
                          : WrongValue(value, value_key, field);
    }
    v1::ReturnTarget& target = *targets.add_targets();
    target.set_score(score);
    target.set_at_least(*at_least);
    return absl::OkStatus();
  };
  if (!node.IsMap()) {
    TROUPE_RETURN_IF_ERROR(add("sum", node, key));
  } else if (node.size() == 0 || node.size() > static_cast<size_t>(rule.max_items())) {
    return Error(node, absl::StrCat(key, ": got ", node.size(), " returns, expected 1 to ", rule.max_items()));
  } else {
    Seen seen;
    for (const auto& entry : node) {
      TROUPE_ASSIGN_OR_RETURN(const std::string score, EntryName(entry.first, key, &seen));
      if (!learner::ParseScore(score).has_value()) {
        return Error(entry.first, absl::StrCat(key, ": ", NoReturn(score)));
      }
      places_[JoinKey(key, score)] = Place(entry.second);
      TROUPE_RETURN_IF_ERROR(add(score, entry.second, JoinKey(key, score)));
    }
  }
  message->GetReflection()->MutableMessage(message, &field)->CopyFrom(targets);
  return absl::OkStatus();
}

void ApplyDefaults(Message* section) {
  const google::protobuf::Descriptor& type = *section->GetDescriptor();
  const AlgorithmNames names;
  PlaceMap places;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (IsOptions(field)) continue;  // below
    if (FormOf(field) == KeyForm::kSection) {
      ApplyDefaults(section->GetReflection()->MutableMessage(section, &field));
      continue;
    }
    const std::string& text = RuleOf(field).default_();
    if (text.empty()) {
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) section->GetReflection()->SetString(section, &field, "");
      if (FormOf(field) == KeyForm::kPolicyMapping) section->GetReflection()->MutableMessage(section, &field);
      continue;
    }
    YamlLoader loader("config.proto", "", &names, &places);
    TROUPE_CHECK(loader.LoadDefault(YAML::Load(text), field, section).ok());
  }
  if (&type != v1::AlgorithmConfig::descriptor()) return;
  auto* const algorithm = static_cast<v1::AlgorithmConfig*>(section);
  SelectOptions(algorithm->name(), algorithm);
}

}  // namespace troupe::config
