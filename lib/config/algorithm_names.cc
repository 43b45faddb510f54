#include "lib/config/algorithm_names.h"

#include <algorithm>
#include <functional>

#include "absl/strings/match.h"
#include "lib/config/algorithms.h"
#include "lib/config/schema.h"

namespace troupe::config {
namespace {

using google::protobuf::FieldDescriptor;

constexpr char kRun[] = "algorithm";
constexpr char kPoliciesKey[] = "multi_agent.policies";
constexpr char kAgentsKey[] = "multi_agent.agents";

/// An entry of a mapping; a node that is not defined: there is none.
YAML::Node Entry(const YAML::Node& node, const char* name) {
  return node.IsMap() ? node[name] : YAML::Node(YAML::NodeType::Undefined);
}

}  // namespace

void AlgorithmNames::Read(const YAML::Node& document) {
  ReadSection(kRun, Entry(document, kRun));
  const YAML::Node multi_agent = Entry(document, "multi_agent");
  if (!multi_agent.IsDefined()) return;
  ReadOverrides(kPoliciesKey, Entry(multi_agent, "policies"));
  ReadOverrides(kAgentsKey, Entry(multi_agent, "agents"));
}

void AlgorithmNames::ReadOverrides(const std::string& key, const YAML::Node& node) {
  if (!node.IsDefined() || !node.IsMap()) return;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) continue;
    ReadSection(JoinKey(JoinKey(key, entry.first.Scalar()), kRun), Entry(entry.second, kRun));
  }
}

void AlgorithmNames::ReadSection(const std::string& section, const YAML::Node& node) {
  if (!node.IsDefined() || !node.IsMap()) return;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) continue;
    const std::string& key = entry.first.Scalar();
    if (key == "name" && entry.second.IsScalar()) {
      const google::protobuf::EnumValueDescriptor* const name =
          FindEnumWord(*v1::AlgorithmName_descriptor(), entry.second.Scalar());
      if (name != nullptr) names_[section] = static_cast<v1::AlgorithmName>(name->number());
    } else if (absl::StartsWith(section, kAgentsKey)) {
      const std::vector<const FieldDescriptor*> fields = FieldsOf(*v1::AlgorithmConfig::descriptor(), key);
      if (!fields.empty() && fields[0]->containing_type() != v1::AlgorithmConfig::descriptor()) {
        own_keys_[section].insert(key);
      }
    }
  }
}

AlgorithmNames::InForce AlgorithmNames::Of(std::string_view section) const {
  auto found = names_.find(section);
  if (found == names_.end()) found = names_.find(kRun);
  if (found != names_.end()) return {found->second, JoinKey(found->first, "name")};
  const FieldDescriptor& name = *v1::AlgorithmConfig::descriptor()->FindFieldByName("name");
  const google::protobuf::EnumValueDescriptor& word = *FindEnumWord(*name.enum_type(), RuleOf(name).default_());
  return {static_cast<v1::AlgorithmName>(word.number()), JoinKey(kRun, "name")};
}

const FieldDescriptor& AlgorithmNames::OptionsOf(std::string_view section) const {
  const FieldDescriptor& in_force = config::OptionsOf(Of(section).name);
  const auto keys = own_keys_.find(section);
  if (keys == own_keys_.end() || names_.find(section) != names_.end()) return in_force;
  const auto has_all = [&keys](const FieldDescriptor* options) {
    return std::all_of(keys->second.begin(), keys->second.end(),
                       [options](const std::string& key) { return FindOption(*options, key) != nullptr; });
  };
  if (has_all(&in_force)) return in_force;
  const std::vector<const FieldDescriptor*> all = AllOptions();
  const auto found = std::find_if(all.begin(), all.end(), has_all);
  return found == all.end() ? in_force : **found;
}

}  // namespace troupe::config
