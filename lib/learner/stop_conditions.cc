#include "lib/learner/stop_conditions.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace troupe::learner {

std::optional<std::string> StopByCounts(const StopOptions& options, const RunCounts& counts) {
  const auto reached = [](const char* name, int64_t value, int64_t limit) -> std::optional<std::string> {
    if (limit <= 0 || value < limit) return std::nullopt;
    return absl::StrCat("stop.", name, " reached: ", value, " of ", limit);
  };
  if (auto reason = reached("env_steps", counts.env_steps, options.env_steps)) return reason;
  if (auto reason = reached("agent_steps", counts.agent_steps, options.agent_steps)) return reason;
  return reached("updates", counts.updates, options.updates);
}

std::optional<std::string> StopByTimeOrReturn(const StopOptions& options, absl::Duration wall_clock,
                                              std::optional<double> return_sum) {
  if (options.wall_clock > absl::ZeroDuration() && wall_clock >= options.wall_clock) {
    return absl::StrCat("stop.wall_clock reached: ", absl::ToInt64Seconds(wall_clock), " of ",
                        absl::ToInt64Seconds(options.wall_clock), " s");
  }
  if (options.has_episode_return && return_sum.has_value() && *return_sum >= options.episode_return) {
    return absl::StrCat("stop.episode_return reached: ", *return_sum, " of ", options.episode_return);
  }
  return std::nullopt;
}

}  // namespace troupe::learner
