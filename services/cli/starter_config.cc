#include "services/cli/starter_config.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/config/image_networks.h"
#include "services/cli/output.h"
#include <yaml-cpp/yaml.h>

namespace troupe::services {
namespace {

constexpr size_t kShownAgents = 4;
constexpr size_t kShownSpace = 64;  // in a terminal of 80 columns

/// "adversary_0" -> "adversary"; an id of digits alone stays.
std::string Stem(const std::string& agent) {
  size_t end = agent.size();
  while (end > 0 && absl::ascii_isdigit(static_cast<unsigned char>(agent[end - 1]))) --end;
  while (end > 0 && (agent[end - 1] == '_' || agent[end - 1] == '-')) --end;
  return end == 0 ? agent : agent.substr(0, end);
}

std::string KindOf(const env::AgentSpec& agent) {
  return absl::StrCat(agent.observation_space.ToString(), "\n", agent.action_space.ToString(), "\n",
                      agent.has_action_mask);
}

std::string Space(const space::Space& space) {
  const std::string text = base::LogSafe(space.ToString());
  return text.size() <= kShownSpace ? text : absl::StrCat(text.substr(0, kShownSpace - 3), "...");
}

std::string Some(const std::vector<std::string>& agents) {
  const size_t shown = std::min(agents.size(), kShownAgents);
  std::string text = absl::StrJoin(agents.begin(), agents.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  if (shown < agents.size()) absl::StrAppend(&text, " and ", agents.size() - shown, " more");
  return base::LogSafe(text);
}

const env::AgentSpec& FirstOf(const AgentKind& kind, const env::EnvSpec& spec) {
  return *std::find_if(spec.possible_agents.begin(), spec.possible_agents.end(),
                       [&](const env::AgentSpec& agent) { return agent.id.value() == kind.agents[0]; });
}

bool SeesImages(const env::EnvSpec& spec) {
  return std::any_of(spec.possible_agents.begin(), spec.possible_agents.end(),
                     [](const env::AgentSpec& agent) { return config::LooksLikeImage(agent.observation_space); });
}

/// The lines of `multi_agent`, and why; empty where one policy for all is the default.
std::string PoliciesYaml(const StarterFacts& facts, const std::vector<AgentKind>& kinds) {
  if (facts.zero_sum)
    return "multi_agent: {policy_mapping: per_agent}   # one wins what the other loses: two policies\n";
  if (kinds.size() < 2) return "";
  std::vector<std::string> ids, rules;
  for (const AgentKind& kind : kinds) {
    ids.push_back(Quoted(kind.policy));
    for (const std::string& glob : kind.mapping) rules.push_back(absl::StrCat(Quoted(glob), ": ", Quoted(kind.policy)));
  }
  return absl::StrCat("multi_agent:   # agents that observe or do different things need policies of their own\n",
                      "  policies: [", absl::StrJoin(ids, ", "), "]\n", "  policy_mapping: {",
                      absl::StrJoin(rules, ", "), "}\n");
}

/// The line of `algorithm`, and why.
std::string AlgorithmYaml(const StarterFacts& facts) {
  if (facts.spec.num_agents() == 1) return "algorithm: {name: ppo}      # or a2c\n";
  if (facts.zero_sum || SeesImages(facts.spec)) {
    return "algorithm: {name: ippo}     # PPO, whose critic observes what its agent does\n";
  }
  return "algorithm: {name: mappo}    # PPO whose critic observes what all agents do; ippo: what its agent does\n";
}

}  // namespace

std::string Quoted(const std::string& text) {
  YAML::Emitter quoted;
  quoted << YAML::DoubleQuoted << text;
  return quoted.c_str();
}

std::vector<AgentKind> AgentKinds(const env::EnvSpec& spec) {
  std::vector<std::string> shapes;
  std::vector<AgentKind> kinds;
  for (const env::AgentSpec& agent : spec.possible_agents) {
    const std::string shape = KindOf(agent);
    const auto at = std::find(shapes.begin(), shapes.end(), shape) - shapes.begin();
    if (static_cast<size_t>(at) == shapes.size()) {
      shapes.push_back(shape);
      kinds.emplace_back();
    }
    kinds[static_cast<size_t>(at)].agents.push_back(agent.id.value());
  }
  std::set<std::string> taken;
  for (AgentKind& kind : kinds) {
    const std::string stem = Stem(kind.agents[0]);
    const auto begins = [&](const std::string& agent) { return agent.compare(0, stem.size(), stem) == 0; };
    const bool all = std::all_of(kind.agents.begin(), kind.agents.end(), begins);
    const auto count = std::count_if(spec.possible_agents.begin(), spec.possible_agents.end(),
                                     [&](const env::AgentSpec& agent) { return begins(agent.id.value()); });
    const bool own = all && static_cast<size_t>(count) == kind.agents.size() && kind.agents.size() > 1;
    kind.policy = all && taken.count(stem) == 0 ? stem : kind.agents[0];
    taken.insert(kind.policy);
    kind.mapping = own ? std::vector<std::string>{stem + "*"} : kind.agents;
  }
  return kinds;
}

std::string FactsText(const StarterFacts& facts) {
  std::string text;
  for (const AgentKind& kind : AgentKinds(facts.spec)) {
    const env::AgentSpec& agent = FirstOf(kind, facts.spec);
    absl::StrAppend(&text, kind.agents.size(), kind.agents.size() == 1 ? " agent: " : " agents: ", Some(kind.agents),
                    "\n  observations  ", Space(agent.observation_space), "\n  actions       ",
                    Space(agent.action_space), agent.has_action_mask ? ", some masked" : "", "\n");
  }
  if (facts.episode_length > 0) {
    absl::StrAppendFormat(&text, "episodes of %.1f env steps", facts.episode_length);
  } else {
    text += "no episode ended in the random play that was timed";
  }
  return text + absl::StrFormat(", %s env steps/s with random actions on one core\n",
                                WithThousands(static_cast<int64_t>(facts.env_steps_per_s)));
}

std::string StarterYaml(const StarterFacts& facts, const std::string& path) {
  const std::vector<AgentKind> kinds = AgentKinds(facts.spec);
  std::string text = absl::StrCat("# ", base::LogSafe(facts.spelled), ", as `troupe init` found it.\n#   troupe train ",
                                  base::LogSafe(path), "\n# Every key with its default: troupe config defaults\n");
  absl::StrAppend(&text, "env: ", facts.env_yaml, "\n", AlgorithmYaml(facts), PoliciesYaml(facts, kinds));
  if (SeesImages(facts.spec)) {
    text += "model: {encoder: auto}      # images of bytes get convolutions by themselves; conv_filters says others\n";
  }
  text +=
      "num_workers: 2              # processes that play; 0: the learner does\n"
      "num_envs_per_worker: 16     # environments that each of them steps side by side\n"
      "stop: {env_steps: 1000000}  # or wall_clock: seconds\n"
      "evaluation: {episodes: 100} # played when training has ended\n";
  return text;
}

}  // namespace troupe::services
