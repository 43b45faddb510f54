#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "lib/learner/checkpoint.h"
#include "lib/learner/episode_stats.h"
#include "lib/sample/batch_fwd.h"

namespace troupe::learner {

/// Statistics of the last 100 episodes that ended in training. Not thread-safe.
class EpisodeWindow {
 public:
  static constexpr size_t kEpisodes = 100;

  EpisodeWindow(int32_t num_agents, int32_t num_infos);

  /// Adds the episodes that ended in one iteration, in an order that does not depend on arrival: the first of every
  /// environment by env id, then the second of every environment, and so on.
  void Add(std::vector<sample::FinishedEpisode> finished, bool by_strangers = false);

  /// The slot gets another policy: what was played there counts for none.
  void ForgetPolicy(policy::PolicySlot policy);
  /// The same of all slots but those that `is_there` says are.
  void KeepPolicies(absl::FunctionRef<bool(policy::PolicySlot)> is_there);

  void Restore(const LearnerState& state);
  /// Fills the state's recent_* fields.
  void Save(LearnerState& state) const;

  int64_t size() const { return static_cast<int64_t>(episodes_.size()); }
  bool full() const { return episodes_.size() == kEpisodes; }
  /// Those of its episodes that strangers did not report.
  EpisodeWindow WithoutStrangers() const;
  /// Of the window, in one pass over it. `num_policies`: slots that there are; what is said of others counts for none.
  EpisodeStats Stats(size_t num_policies) const;
  /// Mean over the window; nullopt when no episode in it has a value.
  std::optional<double> info(int32_t column) const;

 private:
  struct Episode {
    double return_sum = 0;
    double length = 0;
    std::vector<double> returns;               ///< by agent slot, NaN: not in it
    std::vector<policy::PolicySlot> policies;  ///< by agent slot, kNoPolicy: not in it, or unknown
    std::vector<double> infos;                 ///< NaN: never set, or unknown
    bool by_stranger = false;                  ///< reported by a worker whose word is worth nothing (StrangersReturns)
  };
  void Push(Episode episode);

  const int32_t num_agents_;
  const int32_t num_infos_;
  std::deque<Episode> episodes_;  ///< oldest first
};

}  // namespace troupe::learner
