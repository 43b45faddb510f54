#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/run_config.h"
#include "lib/env/env_spec.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_mapping.h"
#include "lib/sample/train_rules.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {

/// A policy that an agent may get.
struct MappedPolicy {
  policy::PolicySlot policy;
  double probability = 1;  ///< in an episode
};

/// Whose settings: a policy's and, where multi_agent.agents says something of the one agent that plays it and nothing
/// else, that agent's.
struct SettingsOf {
  policy::PolicyId policy;
  std::string own_agent = {};  ///< empty: none
};

/// PolicySpec::reward_discount of policies that train so.
double RewardDiscount(const v1::AlgorithmConfig& algorithm);

/// The part of a ResolvedRun that says who plays whom.
struct ResolvedPolicies {
  std::vector<policy::PolicySpec> specs;  ///< by policy slot
  std::vector<policy::MappingRule> rules;
  std::vector<std::vector<MappedPolicy>> policies_of_agent;  ///< by agent slot
  std::vector<bool> trains;                                  ///< by policy slot: policies_to_train
  std::vector<sample::TrainRule> train_rules;                ///< on which trajectories; empty: all
  std::string train_function;        ///< python:…, which is asked who of them trains on a batch; empty: nobody is
  std::vector<SettingsOf> settings;  ///< by policy slot, for AlgorithmOf
};

/// Policies and mapping from multi_agent, algorithm and model, with spaces from the agents that each policy plays.
/// INVALID_ARGUMENT with the place of the key for: no rule for an agent, policies that do not pair with the agents, a
/// policy that is not listed, one that plays nobody and whose spaces cannot be told, spaces that disagree with the
/// agents', a function that is not registered, policies_to_train of an unknown one or of a class that is not trained,
/// overrides that are for nobody (ResolveSettings), a class that is unknown or cannot play the agents' spaces, a model
/// for a class without, different spaces under one policy, a mask that is not there or over a continuous action, a
/// global state that is not there, a space that PPO cannot serve.
absl::StatusOr<ResolvedPolicies> ResolvePolicies(const RunConfig& config, const env::EnvSpec& env);

}  // namespace troupe::config
