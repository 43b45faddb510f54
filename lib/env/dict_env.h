#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::env {

/// What an environment in RLlib's form gives: maps from agent id. Agents that are not ready are absent.
struct DictStep {
  static constexpr char kAll[] = "__all__";
  static constexpr char kTimeLimit[] = "TimeLimit.truncated";

  std::map<std::string, std::vector<float>> observations;  ///< flattened; elements of a uint8 row as whole numbers
  std::map<std::string, double> rewards;                   ///< absent (Python's None): nothing
  std::map<std::string, bool> terminateds;                 ///< may hold kAll; absent: false
  std::map<std::string, bool> truncateds;
  /// Of environments older than terminateds and truncateds: terminated, or truncated where the agent's infos have
  /// kTimeLimit other than 0. kAll is truncated when every agent that ends in this step is, and any does. Beside the
  /// two maps above these are looked at last.
  std::map<std::string, bool> dones;
  std::map<std::string, std::map<std::string, double>>
      infos;  ///< agent -> declared info column, or kTimeLimit -> value; others are ignored
  std::map<std::string, std::vector<uint8_t>>
      action_masks;                                  ///< what RLlib's environments have in infos or observations
  std::map<std::string, bool> agent_masks;           ///< absent: active
  std::map<std::string, std::vector<float>> states;  ///< by agent (kPerAgent), or one under kAll (kPerEnv)
};

/// An environment for people who prefer maps of strings to slots and spans: RLlib's MultiAgentEnv with Gymnasium's
/// terminateds and truncateds. Slower (it allocates in every step). Not thread-safe.
class DictEnv {
 public:
  virtual ~DictEnv() = default;

  virtual const EnvSpec& spec() const = 0;
  /// Only observations, action_masks, agent_masks, states and infos count.
  virtual absl::StatusOr<DictStep> Reset(const EpisodeSeed& seed) = 0;
  /// One action row for every agent that was observed last and is not done.
  virtual absl::StatusOr<DictStep> Step(const std::map<std::string, std::vector<space::ActionWord>>& actions) = 0;
};

/// A DictEnv behind the slot interface. Unknown agents and rows of wrong length are INTERNAL errors of the environment.
/// Ids of agents that are done already may stay in terminateds, truncateds, dones and, with 0, in rewards, as RLlib's
/// environments do.
std::unique_ptr<MultiAgentEnv> MakeMultiAgentEnv(std::unique_ptr<DictEnv> env);

/// A slot environment behind the dict interface. Actions for agents that are not ready, missing ones and unknown ids
/// are INVALID_ARGUMENT. terminateds and truncateds always hold kAll.
std::unique_ptr<DictEnv> MakeDictEnv(std::unique_ptr<MultiAgentEnv> env);

}  // namespace troupe::env
