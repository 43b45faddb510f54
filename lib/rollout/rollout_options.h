#pragma once

#include <cstdint>
#include <vector>

#include "lib/policy/policy_mapping.h"

namespace troupe::rollout {

/// RLlib's batch_mode.
enum class BatchMode : uint8_t {
  kTruncateEpisodes = 1,  ///< fragments may cut episodes
  kCompleteEpisodes = 2,  ///< a grant ends at the end of an episode in every environment
};

struct RolloutOptions {
  uint64_t seed = 0;
  uint32_t num_envs = UINT32_MAX;                  ///< of the run, all workers': a grant's env ids are below it
  int32_t worker = 0;                              ///< index of the worker, for mapping functions
  std::vector<policy::EnvArgument> env_args = {};  ///< of the environment, for mapping functions
  bool explore = true;                             ///< false: the distribution's mode
  int64_t max_fragment_bytes =
      (4 << 20) - (64 << 10);          ///< columns of one fragment; the rest of 4 MiB is for its header
  int64_t max_fragment_env_steps = 0;  ///< of one environment in one fragment; 0: as many as fit the bytes
  double max_failed_share = 1;         ///< of the last episodes (RecentEpisodes::Beyond); beyond it grants are given up
  bool count_outside_space = false;    ///< observations that are not in their space (CheckedEnv::Options)
  bool always_sends_state = false;     ///< the global state, whether a critic reads it or not
  int64_t policy_map_capacity = 100;   ///< policies kept beyond those that episodes in progress play, >= 1
};

}  // namespace troupe::rollout
