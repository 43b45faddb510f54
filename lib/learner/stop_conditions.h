#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "lib/learner/episode_stats.h"
#include "lib/learner/learner_options.h"
#include "lib/policy/policy_table.h"

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

/// Of a score: its mean over a full window of 100 episodes, nullopt before, or where none of them has one.
using ScoreReader = absl::FunctionRef<std::optional<double>(const Score&)>;
/// For who asks of the time alone.
inline std::optional<double> NoScore(const Score& /*score*/) { return std::nullopt; }

/// The same for the time and the returns, which must all be reached.
std::optional<std::string> StopByTimeOrReturn(const StopOptions& options, absl::Duration wall_clock,
                                              ScoreReader score_of);

/// The same for the returns alone, of a window of the run's last episodes: nullopt before it has 100.
std::optional<std::string> StopByReturns(const StopOptions& options, const EpisodeStats& window,
                                         const policy::PolicyTable& table);

/// How far a run is on its way to the limit that it will reach first.
struct RunEnd {
  double fraction = 0;                 ///< 0..1; 0 without a limit
  std::optional<absl::Duration> left;  ///< until then; nullopt: nobody knows
};
/// By the limits of counts and time alone: returns come when they come. `env_steps_per_s`: how fast it is now.
RunEnd NearestEnd(const StopOptions& options, const RunCounts& counts, absl::Duration wall_clock,
                  double env_steps_per_s);

}  // namespace troupe::learner
