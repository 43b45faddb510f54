// Free mappings of a configuration: env.args and wandb_kwargs.

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/yaml_loader.h"
#include "lib/config/yaml_scalars.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

constexpr size_t kMaxKeyText = 128;  // of a key in an error message

void SetScalar(const YAML::Node& node, v1::Argument* argument) {
  if (node.IsNull()) return argument->set_null_value(true);
  if (const std::optional<bool> flag = ParseBool(node)) return argument->set_bool_value(*flag);
  int64_t integer = 0;
  if (IsPlain(node) && absl::SimpleAtoi(node.Scalar(), &integer)) return argument->set_int_value(integer);
  if (const std::optional<double> real = ParseDouble(node)) return argument->set_double_value(*real);
  argument->set_string_value(node.Scalar());
}

/// The value itself and all inside it.
int64_t CountValues(const v1::Argument& argument) {
  int64_t count = 1;
  for (const v1::Argument& value : argument.list_value().values()) count += CountValues(value);
  for (const v1::Argument& entry : argument.map_value().entries()) count += CountValues(entry);
  return count;
}

}  // namespace

absl::Status YamlLoader::TooManyValues(const YAML::Node& node, const std::string& key) const {
  return Error(node, absl::StrCat(base::LogSafe(key, kMaxKeyText), ": got more than ", kMaxArgumentValues,
                                  " values (lists and mappings count, too), expected at most so many"));
}

absl::Status YamlLoader::LoadArgument(const YAML::Node& node, const std::string& key, int depth,
                                      v1::Argument* argument) {
  if (++argument_values_ > kMaxArgumentValues) return TooManyValues(node, key);  // aliases can make a short text long
  if (!node.IsSequence() && !node.IsMap()) {
    if (node.IsScalar()) argument_bytes_ += static_cast<int64_t>(node.Scalar().size());
    if (argument_bytes_ > kMaxArgumentBytes) {
      return Error(node, absl::StrCat(base::LogSafe(key, kMaxKeyText), ": got more than ", kMaxArgumentBytes,
                                      " bytes of values (an alias counts each time), expected at most so many"));
    }
    SetScalar(node, argument);
    return absl::OkStatus();
  }
  if (depth == kMaxArgumentDepth) {
    return Error(node,
                 absl::StrCat(base::LogSafe(key, kMaxKeyText), ": got ", Describe(node), " inside ", kMaxArgumentDepth,
                              " lists and mappings, expected values nested at most ", kMaxArgumentDepth, " deep"));
  }
  if (node.IsSequence()) {
    v1::ArgumentList list;
    for (const YAML::Node& item : node) {
      const std::string item_key = absl::StrCat(key, "[", list.values_size(), "]");
      TROUPE_RETURN_IF_ERROR(LoadArgument(item, item_key, depth + 1, list.add_values()));
    }
    *argument->mutable_list_value() = std::move(list);
    return absl::OkStatus();
  }
  return MergeArguments(node, key, depth + 1, argument->mutable_map_value()->mutable_entries());
}

absl::Status YamlLoader::MergeArguments(const YAML::Node& node, const std::string& key, int depth, Arguments* merged) {
  std::map<std::string, v1::Argument*> known;  // whoever adds to a RepeatedPtrField leaves the others where they are
  for (v1::Argument& entry : *merged) known[entry.name()] = &entry;
  Seen seen;
  for (const auto& entry : node) {
    TROUPE_ASSIGN_OR_RETURN(const std::string name, EntryName(entry.first, key, &seen));
    if (depth == 0) places_[JoinKey(key, name)] = Place(entry.second);
    v1::Argument*& argument = known[name];
    if (argument == nullptr) argument = merged->Add();
    argument->set_name(name);
    TROUPE_RETURN_IF_ERROR(LoadArgument(entry.second, JoinKey(key, name), depth, argument));
  }
  return absl::OkStatus();
}

absl::Status YamlLoader::LoadArguments(const YAML::Node& node, const std::string& key, const Field& field,
                                       Message* message) {
  if (node.IsNull()) return absl::OkStatus();
  // What stands there may be a secret that was meant to be a mapping.
  if (!node.IsMap() && key == "experiment.wandb_kwargs") {
    return Error(node, absl::StrCat(key, ": got no mapping, expected ", Expectation(field)));
  }
  if (!node.IsMap()) return WrongValue(node, key, field);
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  Arguments merged;
  for (const v1::Argument& argument : reflection.GetRepeatedFieldRef<v1::Argument>(*message, &field)) {
    *merged.Add() = argument;
  }
  argument_values_ = 0;
  argument_bytes_ = 0;
  TROUPE_RETURN_IF_ERROR(MergeArguments(node, key, 0, &merged));
  int64_t values = 0;
  for (const v1::Argument& argument : merged) values += CountValues(argument);
  if (values > kMaxArgumentValues) return TooManyValues(node, key);
  reflection.ClearField(message, &field);
  for (const v1::Argument& argument : merged) reflection.AddMessage(message, &field)->CopyFrom(argument);
  return absl::OkStatus();
}

}  // namespace troupe::config
