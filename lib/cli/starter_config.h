#pragma once

#include <string>
#include <vector>

#include "lib/env/env_spec.h"

namespace troupe::cli {

/// Agents whose observations and actions are alike, and the policy that plays them.
struct AgentKind {
  std::string policy;                ///< id of the policy
  std::vector<std::string> mapping;  ///< globs over agent ids; no agent of another kind matches one
  std::vector<std::string> agents;   ///< ids
};

/// What `troupe init` knows of an environment. Plain value.
struct StarterFacts {
  std::string spelled;   ///< as the person named it
  std::string env_yaml;  ///< the mapping of `env`, in one line
  env::EnvSpec spec;
  bool zero_sum = false;      ///< two agents, one of which wins what the other loses
  bool no_reward = false;     ///< random play got none
  bool saw_alike = false;     ///< two agents observed the same in one env step
  bool takes_turns = false;   ///< several agents, of which one acts in each env step
  double episode_length = 0;  ///< mean of random play, env steps; 0: no episode ended
  bool fixed_length = false;  ///< some ended, and each had as many
  double env_steps_per_s = 0;
  bool shrinks_images = false;  ///< by SmallerImages
};

/// `text` as a double-quoted scalar of YAML.
std::string Quoted(const std::string& text);

/// The agents of an environment by what they observe and do, in order.
std::vector<AgentKind> AgentKinds(const env::EnvSpec& spec);

/// The keys of env that make large images gray and small, `env.resize=[49, 84]`; none where no image is large, or where
/// some agent observes something else.
std::vector<std::string> SmallerImages(const env::EnvSpec& spec);
/// What was found, for people: agents, spaces, masks, episodes and speed, a line each.
std::string FactsText(const StarterFacts& facts);

/// A configuration that trains the environment, with comments. `path`: where it will be written.
std::string StarterYaml(const StarterFacts& facts, const std::string& path);

}  // namespace troupe::cli
