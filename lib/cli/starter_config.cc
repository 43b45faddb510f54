#include "lib/cli/starter_config.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/cli/output.h"
#include "lib/config/resolve_algorithms.h"
#include "lib/space/image.h"
#include "lib/space/observation_leaves.h"
#include <yaml-cpp/yaml.h>

namespace troupe::cli {
namespace {

constexpr size_t kShownAgents = 4;
constexpr size_t kShownSpace = 64;  // in a terminal of 80 columns
// Half the default: few environments play, and more updates learn in fewer env steps (docs/configuration.md).
constexpr int64_t kBatchEnvSteps = 2048;
constexpr int64_t kMostRows = 64'000;
// Where an environment is slow a batch is played in this time on one core, if that is so many env steps at least; and
// evaluations in the other.
constexpr double kBatchSeconds = 20, kEvaluationSeconds = 60;
constexpr int64_t kLeastBatchEnvSteps = 256;
constexpr int64_t kEvaluationEpisodes = 100, kLeastEvaluationEpisodes = 5, kEpisodesOfUnknownLength = 10;
// Pixels of the longer side: larger images become as small as those of Atari's games do in other libraries.
constexpr int64_t kLargeImage = 128, kSmallImage = 84;
constexpr int64_t kRunEnvSteps = 1'000'000;
constexpr double kDefaultGamma = 0.99, kLeastGamma = 0.9;

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

/// Two agents that are taken for opponents.
bool AreOpponents(const StarterFacts& facts) {
  return facts.zero_sum || (facts.no_reward && facts.takes_turns && facts.spec.num_agents() == 2);
}

/// Images that get convolutions without being asked.
bool SeesImages(const env::EnvSpec& spec) {
  return std::any_of(spec.possible_agents.begin(), spec.possible_agents.end(),
                     [](const env::AgentSpec& agent) { return space::IsImage(agent.observation_space); });
}

/// The lines of `multi_agent`, and why; empty where one policy for all is the default.
std::string PoliciesYaml(const StarterFacts& facts, const std::vector<AgentKind>& kinds) {
  if (facts.zero_sum)
    return "multi_agent: {policy_mapping: per_agent}   # one wins what the other loses: two policies\n";
  if (AreOpponents(facts)) {
    return "# Two agents that take turns, and random play got no reward: they are taken for opponents. If they are a "
           "team,\n"
           "# take mappo, and leave this line out.\n"
           "multi_agent: {policy_mapping: per_agent}\n";
  }
  if (kinds.size() < 2) {
    if (!facts.no_reward || facts.spec.num_agents() < 2) return "";
    return "# Random play got no reward. If one agent wins what another loses, take ippo, and a policy for each:\n"
           "# multi_agent: {policy_mapping: per_agent}\n";
  }
  std::vector<std::string> ids, rules;
  for (const AgentKind& kind : kinds) {
    ids.push_back(Quoted(kind.policy));
    for (const std::string& glob : kind.mapping) rules.push_back(absl::StrCat(Quoted(glob), ": ", Quoted(kind.policy)));
  }
  return absl::StrCat("multi_agent:   # agents that observe or do different things need policies of their own\n",
                      "  policies: [", absl::StrJoin(ids, ", "), "]\n", "  policy_mapping: {",
                      absl::StrJoin(rules, ", "), "}\n");
}

bool ActsContinuously(const env::AgentSpec& agent) {
  const std::vector<space::ActionLeaf> leaves = space::ActionLeaves(agent.action_space);
  return std::any_of(leaves.begin(), leaves.end(),
                     [](const space::ActionLeaf& leaf) { return leaf.kind == space::ActionLeaf::Kind::kContinuous; });
}

/// Env steps of a batch; of slow environments fewer.
int64_t BatchEnvSteps(const StarterFacts& facts) {
  if (facts.env_steps_per_s <= 0) return kBatchEnvSteps;
  const auto played = static_cast<int64_t>(facts.env_steps_per_s * kBatchSeconds) / 64 * 64;
  return std::clamp(played, kLeastBatchEnvSteps, kBatchEnvSteps);
}

/// The lines of `algorithm`, and why.
std::string AlgorithmYaml(const StarterFacts& facts) {
  const std::vector<env::AgentSpec>& agents = facts.spec.possible_agents;
  const auto line = [](const std::string& key, const std::string& value, const std::string& why) {
    return absl::StrFormat("  %-31s # %s\n", absl::StrCat(key, ": ", value), why);
  };
  std::string text = "algorithm:\n";
  if (agents.size() == 1) {
    text += line("name", "ppo", "or a2c");
  } else if (AreOpponents(facts) || SeesImages(facts.spec)) {
    text += line("name", "ippo", "PPO, whose critic observes what its agent does");
  } else {
    text += line("name", "mappo", "PPO whose critic observes what all agents do; ippo: what its agent does");
  }
  const auto num_agents = static_cast<int64_t>(agents.size());
  const int64_t batch = BatchEnvSteps(facts);
  if (num_agents * batch > kMostRows) {
    const int64_t env_steps = std::max<int64_t>(100, kMostRows / num_agents / 100 * 100);
    text += line("train_batch_size", absl::StrCat(env_steps),
                 absl::StrCat("env steps of an update; of ", num_agents, " agents they are ",
                              WithThousands(env_steps * num_agents), " rows"));
  } else if (batch < kBatchEnvSteps) {
    text += line("train_batch_size", absl::StrCat(batch),
                 absl::StrFormat("env steps of an update; few, as %.0f a second are played", facts.env_steps_per_s));
  } else {
    text += line("train_batch_size", absl::StrCat(kBatchEnvSteps),
                 "env steps of an update; with more, updates are rarer and steadier");
  }
  text += line("minibatch_size", "auto", "a 32nd of a policy's rows in a batch, but at least 64");
  if (facts.fixed_length && facts.episode_length < 2 / (1 - kDefaultGamma)) {
    text += line("gamma", absl::StrFormat("%.2f", std::max(kLeastGamma, 1 - 2 / facts.episode_length)),
                 absl::StrFormat("looks half an episode ahead, which lasts %.0f env steps", facts.episode_length));
  } else {
    text += line("gamma", absl::StrFormat("%.2f", kDefaultGamma), "looks some 100 decisions ahead");
  }
  const auto continuous = std::count_if(agents.begin(), agents.end(), ActsContinuously);
  if (continuous == 0) {
    absl::StrAppend(&text, "  # Discrete actions stay varied at first; at the end of this run nothing keeps them so.\n",
                    "  entropy_coeff: {initial: 0.01, final: 0, env_steps: ", kRunEnvSteps, "}\n");
  } else {
    text += line("entropy_coeff", "auto",
                 continuous == num_agents ? "0: a bonus would keep up the noise of continuous actions"
                                          : "0 for policies with continuous actions, 0.01 for the others");
  }
  const std::vector<AgentKind> kinds = AgentKinds(facts.spec);
  const bool shares =
      std::any_of(kinds.begin(), kinds.end(), [](const AgentKind& kind) { return kind.agents.size() > 1; });
  if (shares && !AreOpponents(facts) && !facts.saw_alike) {
    text += line("use_agent_id", "false", "no two agents ever observed the same, so that they need no names");
  }
  const bool normalizes =
      !SeesImages(facts.spec) && std::any_of(agents.begin(), agents.end(), [](const env::AgentSpec& agent) {
        return ActsContinuously(agent) && space::HasUnboundedNumbers(agent.observation_space);
      });
  return text + line("normalize_observations", "auto",
                     normalizes ? "true with continuous actions, where numbers have no bounds"
                                : "false; true helps where numbers are large");
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

std::vector<std::string> SmallerImages(const env::EnvSpec& spec) {
  int64_t longest = 0;
  bool colored = true;
  for (const env::AgentSpec& agent : spec.possible_agents) {
    if (!space::IsImage(agent.observation_space)) return {};
    const space::ImageExtent image = space::ImageOf(agent.observation_space);
    longest = std::max({longest, image.height, image.width});
    colored = colored && image.channels == 3;
  }
  if (longest <= kLargeImage) return {};
  const space::ImageExtent image = space::ImageOf(spec.possible_agents[0].observation_space);
  const auto scaled = [longest](int64_t extent) {
    return std::max(space::kMinImageExtent, (extent * kSmallImage + longest / 2) / longest);
  };
  std::vector<std::string> keys;
  if (colored) keys.push_back("env.grayscale=true");
  keys.push_back(absl::StrCat("env.resize=[", scaled(image.height), ", ", scaled(image.width), "]"));
  return keys;
}

std::string FactsText(const StarterFacts& facts) {
  std::string text;
  for (const AgentKind& kind : AgentKinds(facts.spec)) {
    const env::AgentSpec& agent = FirstOf(kind, facts.spec);
    absl::StrAppend(&text, kind.agents.size(), kind.agents.size() == 1 ? " agent: " : " agents: ", Some(kind.agents),
                    "\n  observations  ", Space(agent.observation_space), "\n  actions       ",
                    Space(agent.action_space), agent.has_action_mask ? ", some masked" : "", "\n  algorithms    ",
                    absl::StrJoin(config::AlgorithmsThatFit(agent), ", "), "\n");
  }
  if (facts.episode_length > 0) {
    absl::StrAppendFormat(&text, "episodes of %.1f env steps", facts.episode_length);
  } else {
    text += "no episode of random play ended";
  }
  return text + absl::StrFormat(", %s env steps/s with random actions on one core\n",
                                WithThousands(static_cast<int64_t>(facts.env_steps_per_s)));
}

std::string StarterYaml(const StarterFacts& facts, const std::string& path) {
  const std::vector<AgentKind> kinds = AgentKinds(facts.spec);
  std::string text = absl::StrCat("# ", base::LogSafe(facts.spelled), ", as `troupe init` found it.\n#   troupe train ",
                                  base::LogSafe(path), "\n# Every key with its default: troupe config defaults\n");
  if (facts.shrinks_images) text += "# Its images are large; gray and smaller ones train much faster.\n";
  absl::StrAppend(&text, "env: ", facts.env_yaml, "\n", AlgorithmYaml(facts), PoliciesYaml(facts, kinds));
  if (SeesImages(facts.spec)) {
    text += "model: {encoder: auto}      # images of bytes get convolutions by themselves; conv_filters says others\n";
  }
  // Where no episode ended in the time, they are long.
  const double length =
      facts.episode_length > 0 ? facts.episode_length : static_cast<double>(facts.spec.max_episode_steps);
  int64_t episodes = length > 0 || facts.env_steps_per_s <= 0 ? kEvaluationEpisodes : kEpisodesOfUnknownLength;
  if (length > 0 && facts.env_steps_per_s > 0) {
    const double played = facts.env_steps_per_s * kEvaluationSeconds / length;
    episodes = static_cast<int64_t>(std::clamp<double>(played, kLeastEvaluationEpisodes, kEvaluationEpisodes));
  }
  // Fewer environments, so that each plays some steps of a small batch on end.
  const int num_envs = BatchEnvSteps(facts) < kBatchEnvSteps ? 4 : 16;
  absl::StrAppendFormat(&text,
                        "num_workers: 2              # processes that play; 0: the learner does\n"
                        "%-27s # environments that each of them steps side by side\n"
                        "stop: {env_steps: %d}  # or wall_clock: seconds\n"
                        "%-27s # played when training has ended\n",
                        absl::StrCat("num_envs_per_worker: ", num_envs), kRunEnvSteps,
                        absl::StrCat("evaluation: {episodes: ", episodes, "}"));
  return text;
}

}  // namespace troupe::cli
