#include "lib/config/parse_policy_mapping.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/config/algorithm_names.h"
#include "lib/config/parse_yaml.h"
#include "lib/config/yaml_loader.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

constexpr size_t kAgentsShown = 16;

}  // namespace

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

std::string WhyNoAgentMeets(absl::Span<const std::string> globs, size_t place, absl::Span<const std::string> agents) {
  const std::string* before = nullptr;  // a glob that takes an agent which this one matches, too
  for (const std::string& agent : agents) {
    size_t first = 0;
    while (first < globs.size() && !policy::GlobMatches(globs[first], agent)) ++first;
    if (first == place) return "";
    if (first < place && policy::GlobMatches(globs[place], agent)) before = &globs[first];
  }
  if (before != nullptr) {
    return absl::StrCat("got a glob behind \"", base::LogSafe(*before, 64),
                        "\", which takes every agent that it matches, expected it before; change their order");
  }
  const std::vector<std::string> names(agents.begin(), agents.end());
  const std::string nearest = base::NearestName(globs[place], names);
  return absl::StrCat(
      "got a glob that matches no agent, expected one that matches some of ", base::FewOf(names, kAgentsShown), "; ",
      nearest.empty() ? "take it out" : absl::StrCat("the nearest is \"", base::LogSafe(nearest, 64), "\""));
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
  std::vector<std::string> globs;
  for (const policy::MappingRule& rule : rules) globs.push_back(rule.agent_glob);
  for (size_t i = 0; i < globs.size(); ++i) {
    const std::string why = WhyNoAgentMeets(globs, i, agent_ids);
    if (why.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(place, ": policy_mapping.", base::LogSafe(globs[i], 64), ": ", why));
  }
  return rules;
}

}  // namespace troupe::config
