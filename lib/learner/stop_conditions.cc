#include "lib/learner/stop_conditions.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "lib/learner/episode_window.h"
#include "lib/learner/score.h"

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
                                              ScoreReader score_of) {
  if (options.wall_clock > absl::ZeroDuration() && wall_clock >= options.wall_clock) {
    return absl::StrCat("stop.wall_clock reached: ", absl::ToInt64Seconds(wall_clock), " of ",
                        absl::ToInt64Seconds(options.wall_clock), " s");
  }
  if (options.episode_return.empty()) return std::nullopt;
  std::vector<std::string> reached;
  for (const ReturnTarget& target : options.episode_return) {
    const std::optional<double> score = score_of(target.score);
    if (!score.has_value() || *score < target.at_least) return std::nullopt;
    const bool is_sum = target.score.kind == Score::Kind::kSum;
    reached.push_back(
        absl::StrCat(is_sum ? "" : absl::StrCat(target.score.Text(), " "), *score, " of ", target.at_least));
  }
  return absl::StrCat("stop.episode_return reached: ", absl::StrJoin(reached, ", "));
}

std::optional<std::string> StopByReturns(const StopOptions& options, const EpisodeStats& window,
                                         const policy::PolicyTable& table) {
  const bool full = window.episodes() >= static_cast<int64_t>(EpisodeWindow::kEpisodes);
  if (!full || options.episode_return.empty()) return std::nullopt;
  StopOptions returns;
  returns.episode_return = options.episode_return;
  return StopByTimeOrReturn(returns, absl::ZeroDuration(),
                            [&](const Score& score) { return ScoreOf(score, window, table); });
}

RunEnd NearestEnd(const StopOptions& options, const RunCounts& counts, absl::Duration wall_clock,
                  double env_steps_per_s) {
  RunEnd end;
  const auto consider = [&end](double fraction, std::optional<absl::Duration> left) {
    // One that comes at a time that nobody knows yet is told by how far it is.
    const bool sooner = left.has_value() ? !end.left.has_value() || *left < *end.left
                                         : !end.left.has_value() && fraction > end.fraction;
    if (sooner) end = {std::clamp(fraction, 0.0, 1.0), left};
  };
  const auto count = [&](int64_t value, int64_t limit) {
    if (limit <= 0) return;
    // As fast as env steps are, in the proportion so far.
    const double per_s =
        counts.env_steps > 0 ? env_steps_per_s * static_cast<double>(value) / static_cast<double>(counts.env_steps) : 0;
    const double left = std::max(0.0, static_cast<double>(limit - value));
    consider(static_cast<double>(value) / static_cast<double>(limit),
             per_s > 0 ? std::optional<absl::Duration>(absl::Seconds(left / per_s)) : std::nullopt);
  };
  count(counts.env_steps, options.env_steps);
  count(counts.agent_steps, options.agent_steps);
  count(counts.updates, options.updates);
  if (options.wall_clock > absl::ZeroDuration()) {
    consider(absl::FDivDuration(wall_clock, options.wall_clock),
             std::max(absl::ZeroDuration(), options.wall_clock - wall_clock));
  }
  return end;
}

}  // namespace troupe::learner
