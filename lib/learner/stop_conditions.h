#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/learner/learner_options.h"

namespace troupe::learner {

/// Where a run stands, as far as its end depends on it.
struct RunCounts {
  int64_t env_steps = 0;
  int64_t agent_steps = 0;
  int64_t updates = 0;
};

/// Which limit of env steps, agent steps or updates `counts` has reached ("stop.env_steps reached: 1000 of 1000");
/// nullopt: none.
std::optional<std::string> StopByCounts(const StopOptions& options, const RunCounts& counts);

/// The same for the time and the return. `return_sum` is the mean over a full window of 100 episodes, nullopt before.
std::optional<std::string> StopByTimeOrReturn(const StopOptions& options, absl::Duration wall_clock,
                                              std::optional<double> return_sum);

}  // namespace troupe::learner
