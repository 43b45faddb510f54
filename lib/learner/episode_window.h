#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "lib/learner/checkpoint.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

/// Statistics of the last 100 episodes that ended in training. Not thread-safe.
class EpisodeWindow {
 public:
  static constexpr size_t kEpisodes = 100;

  EpisodeWindow(int32_t num_agents, int32_t num_infos);

  /// Adds the episodes that ended in one iteration, in an order that does not depend on arrival: the first of every
  /// environment by env id, then the second of every environment, and so on.
  void Add(std::vector<sample::FinishedEpisode> finished);

  /// The slot gets another policy: what was played there counts for none.
  void ForgetPolicy(int32_t policy);

  void Restore(const LearnerState& state);
  /// Fills the state's recent_* fields.
  void Save(LearnerState& state) const;

  int64_t size() const { return static_cast<int64_t>(episodes_.size()); }
  bool full() const { return episodes_.size() == kEpisodes; }
  // Means over the window; nullopt when no episode in it has a value.
  std::optional<double> return_sum() const;   ///< of all agents together
  std::optional<double> return_mean() const;  ///< over the agents that took part
  std::optional<double> length() const;       ///< env steps
  std::optional<double> agent_return(int32_t slot) const;
  /// Over the returns of the agents the policy played. Episodes from before a restart have no policies.
  std::optional<double> policy_return(int32_t policy) const;
  std::optional<double> info(int32_t column) const;

 private:
  struct Episode {
    double return_sum = 0;
    double length = 0;
    std::vector<double> returns;    ///< by agent slot, NaN: not in it
    std::vector<int32_t> policies;  ///< by agent slot, -1: not in it, or unknown
    std::vector<double> infos;      ///< NaN: never set, or unknown
  };
  void Push(Episode episode);

  const int32_t num_agents_;
  const int32_t num_infos_;
  std::deque<Episode> episodes_;  ///< oldest first
};

}  // namespace troupe::learner
