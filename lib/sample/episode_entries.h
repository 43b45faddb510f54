#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/ids.h"
#include "lib/policy/ids.h"

namespace troupe::sample {

/// How an agent took part in an episode; also for policies that do not train here, so that predicates and critics can
/// see them.
struct AgentEntry {
  base::AgentSlot slot;
  policy::PolicySlot policy;  ///< who plays it in this episode
};

/// A part of one episode inside a fragment.
struct EpisodeEntry {
  base::EnvId env_id;              ///< global environment id
  uint32_t episode = 0;            ///< ordinal in that environment
  int32_t first_step = 0;          ///< env_step of the first row here
  bool continues = false;          ///< it began in an earlier fragment
  std::vector<AgentEntry> agents;  ///< agents observed so far, by slot
};

/// An episode that ended in this fragment, for metrics.
struct FinishedEpisode {
  base::EnvId env_id;
  uint32_t episode = 0;
  int32_t length = 0;  ///< env steps
  /// By agent slot, undiscounted sum of rewards; the mean of its trajectories where the agent ended and returned; NaN
  /// for agents that never appeared.
  std::vector<float> returns;
  std::vector<policy::PolicySlot> policies;  ///< by agent slot: who played it, kNoPolicy for those
  std::vector<float> infos;                ///< by EnvSpec::info_columns: mean over agents and steps; NaN when never set
  std::vector<int32_t> trajectories = {};  ///< by agent slot; empty: one each, no agent has returned
};

}  // namespace troupe::sample
