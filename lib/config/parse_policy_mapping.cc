#include "lib/config/parse_policy_mapping.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithm_names.h"
#include "lib/config/parse_yaml.h"
#include "lib/config/yaml_loader.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {

std::vector<policy::MappingRule> MappingRules(const v1::PolicyMapping& mapping) {
  std::vector<policy::MappingRule> rules;
  for (const v1::PolicyMappingRule& rule : mapping.rules()) {
    rules.push_back({rule.agents(), {}, rule.function()});
    for (const v1::WeightedPolicy& weighted : rule.policies()) {
      rules.back().policies.push_back({policy::PolicyId(weighted.policy()), weighted.weight()});
    }
  }
  return rules;
}

absl::StatusOr<std::vector<policy::MappingRule>> ParsePolicyMapping(std::string_view yaml, std::string_view source,
                                                                    absl::Span<const std::string> agent_ids) {
  const std::string place(source);
  TROUPE_ASSIGN_OR_RETURN(const YAML::Node parsed, ParseYaml(std::string(yaml), place, false));
  YAML::Node root;
  root["multi_agent"]["policy_mapping"] = parsed;
  v1::RunConfig config;
  PlaceMap places;
  const AlgorithmNames names;
  TROUPE_RETURN_IF_ERROR(YamlLoader(place, "", &names, &places).Load(root, &config));
  const v1::PolicyMapping& mapping = config.multi_agent().policy_mapping();
  std::vector<policy::MappingRule> rules = MappingRules(mapping);
  if (mapping.per_agent()) {
    for (const std::string& agent : agent_ids) rules.push_back({agent, {{policy::PolicyId(agent)}}});
  }
  if (rules.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        place, ": policy_mapping: got no rules, expected a mapping from agents to policies, or per_agent"));
  }
  return rules;
}

}  // namespace troupe::config
