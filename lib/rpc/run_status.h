#pragma once

#include <string>
#include <vector>

#include "lib/learner/episode_stats.h"
#include "lib/learner/progress.h"
#include "lib/policy/ids.h"

namespace troupe::rpc {

/// How a policy of the run does. Plain value.
struct PolicyStatus {
  policy::PolicyId id;
  policy::WeightVersion version;  ///< published
  bool trains = false;
  learner::Spread returns;  ///< of the agents that it played in the last 100 episodes; empty: it played in none
};

/// Everything that Monitor.Status tells. Made by LearnerBinding, which fills in what the learner knows, and completed
/// by who runs the learner. Plain value.
struct RunStatus {
  std::string build_version;
  std::string run_name;
  learner::LearnerStatus learner;
  std::vector<std::string> worker_names;  ///< by place in `learner.workers`; empty where none is known
  std::vector<std::string> degraded;      ///< what does not work at the moment, in words without paths
  std::vector<PolicyStatus> policies;     ///< by policy slot; those that are there
};

}  // namespace troupe::rpc
