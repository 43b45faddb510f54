#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace troupe::envs {

/// How far a native environment is from a recorded episode of the original.
struct ReplayReport {
  std::string env;             ///< the original's name
  int64_t steps = 0;           ///< that were compared
  int64_t steps_left_out = 0;  ///< that were not, from the first one in which a random number decided something
  double max_obs_diff = 0;     ///< largest absolute difference of an observation element
  double max_reward_diff = 0;
  double max_info_diff = 0;  ///< of benchmark data, where the trace has it
  bool flags_equal = true;   ///< terminations, truncations and the set of agents
  std::string where;         ///< the first unequal flag, else where the largest difference is

  bool Within(double tolerance) const {
    return flags_equal && max_obs_diff <= tolerance && max_reward_diff <= tolerance && max_info_diff <= tolerance;
  }
};

/// Replays one line of a trace file (docs/environments.md gives the format): same arguments, same initial world, same
/// actions. INVALID_ARGUMENT for a line that is no such trace, NOT_FOUND for an environment that is not built in; the
/// environment's own errors otherwise. Infinite differences stand for NaN.
absl::StatusOr<ReplayReport> ReplayTrace(std::string_view json_line);

}  // namespace troupe::envs
