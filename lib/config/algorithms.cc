#include "lib/config/algorithms.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/config/schema.h"
#include "lib/config/yaml_loader.h"
#include <google/protobuf/reflection.h>

namespace troupe::config {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const EnumValueDescriptor& ValueOf(v1::AlgorithmName name) {
  const EnumValueDescriptor* const value = v1::AlgorithmName_descriptor()->FindValueByNumber(name);
  TROUPE_CHECK(value != nullptr);
  return *value;
}

const v1::AlgorithmRule& RuleOfName(const EnumValueDescriptor& name) {
  return name.options().GetExtension(v1::algorithm_rule);
}

std::vector<std::string> NamesWhere(const FieldDescriptor& options, bool only_centralized) {
  const EnumDescriptor& names = *v1::AlgorithmName_descriptor();
  std::vector<std::string> words;
  for (int i = 0; i < names.value_count(); ++i) {
    const v1::AlgorithmRule& rule = RuleOfName(*names.value(i));
    if (rule.options() == options.name() && (!only_centralized || rule.centralized_critic())) {
      words.push_back(EnumWord(*names.value(i)));
    }
  }
  return words;
}

}  // namespace

std::vector<const FieldDescriptor*> AllOptions() {
  std::vector<const FieldDescriptor*> all;
  const google::protobuf::Descriptor& section = *v1::AlgorithmConfig::descriptor();
  for (int i = 0; i < section.field_count(); ++i) {
    if (IsOptions(*section.field(i))) all.push_back(section.field(i));
  }
  return all;
}

const FieldDescriptor& OptionsOf(v1::AlgorithmName name) {
  const std::string& entry = RuleOfName(ValueOf(name)).options();
  const FieldDescriptor* const options = v1::AlgorithmConfig::descriptor()->FindFieldByName(entry);
  TROUPE_CHECK(options != nullptr && IsOptions(*options));
  return *options;
}

const FieldDescriptor* OptionsIn(const v1::AlgorithmConfig& algorithm) {
  for (const FieldDescriptor* const options : AllOptions()) {
    if (algorithm.GetReflection()->HasField(algorithm, options)) return options;
  }
  return nullptr;
}

std::string AlgorithmWord(v1::AlgorithmName name) { return EnumWord(ValueOf(name)); }

bool HasCentralizedCritic(v1::AlgorithmName name) { return RuleOfName(ValueOf(name)).centralized_critic(); }

bool HasLayerNorm(v1::AlgorithmName name) { return RuleOfName(ValueOf(name)).layer_norm(); }

std::vector<std::string> NamesOf(const FieldDescriptor& options) { return NamesWhere(options, false); }

std::vector<std::string> CentralizedNamesOf(const FieldDescriptor& options) { return NamesWhere(options, true); }

const FieldDescriptor* FindOption(const FieldDescriptor& options, std::string_view key) {
  return options.message_type()->FindFieldByName(std::string(key));
}

std::vector<std::string> NamesWithOption(std::string_view key) {
  std::vector<std::string> names;
  for (const FieldDescriptor* const options : AllOptions()) {
    if (FindOption(*options, key) == nullptr) continue;
    for (const std::string& name : NamesOf(*options)) names.push_back(name);
  }
  const bool all = names.size() == EnumWords(*v1::AlgorithmName_descriptor()).size();
  return all ? std::vector<std::string>() : names;
}

Message* MutableOptions(const FieldDescriptor& options, v1::AlgorithmConfig* algorithm) {
  return algorithm->GetReflection()->MutableMessage(algorithm, &options);
}

void SelectOptions(v1::AlgorithmName name, v1::AlgorithmConfig* algorithm) {
  const FieldDescriptor& options = OptionsOf(name);
  if (OptionsIn(*algorithm) != &options) ApplyDefaults(MutableOptions(options, algorithm));
}

std::string OfAnotherAlgorithm(std::string_view key, v1::AlgorithmName name, std::string_view name_key) {
  std::vector<std::string> names = NamesWithOption(key);
  std::string last;
  if (names.size() > 1) {
    last = absl::StrCat(" and ", names.back());
    names.pop_back();
  }
  const std::string word = AlgorithmWord(name);
  return absl::StrCat("is of ", absl::StrJoin(names, ", "), last, ", got ",
                      absl::string_view(name_key.data(), name_key.size()), ": ", word, "; ", word, " has ",
                      absl::StrJoin(KeyNames(*OptionsOf(name).message_type()), ", "));
}

}  // namespace troupe::config
