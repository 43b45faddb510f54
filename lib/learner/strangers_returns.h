#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lib/learner/episode_window.h"
#include "lib/learner/score.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/ids.h"

namespace troupe::learner {

/// The returns that strangers report: workers that came over TCP, and all workers of a run whose environment is played
/// by clients over TCP. Anybody who reaches the port can report any return, so one reporter's word is worth nothing.
/// Several check each other: a score is the median of the reporters' means. Made and owned by EpisodeBook, confined to
/// the update thread.
class StrangersReturns {
 public:
  /// With fewer reporters there is no score. A stranger who connects more often than all others together decides it.
  static constexpr size_t kFewestReporters = 3;
  /// The reporters that are remembered: those that reported last. Each costs the memory of its last 100 episodes.
  static constexpr size_t kMostReporters = 64;

  StrangersReturns(int32_t num_agents, int32_t num_infos) : num_agents_(num_agents), num_infos_(num_infos) {}

  /// Episodes that one of them reported in a batch.
  void Add(sample::WorkerId worker, std::vector<sample::FinishedEpisode> finished);
  void ForgetPolicy(policy::PolicySlot slot);

  /// The median of the reporters' mean scores, each over its last 100 episodes; of an even number of reporters the
  /// lower middle one. nullopt with fewer than kFewestReporters, or 100 episodes in all.
  std::optional<double> ScoreOf(const Score& score, const policy::PolicyTable& table) const;

 private:
  struct Reporter {
    EpisodeWindow window;
    int64_t last = 0;  ///< number of the Add that was its last
  };

  const int32_t num_agents_;
  const int32_t num_infos_;
  int64_t adds_ = 0;
  std::map<uint64_t, Reporter> reporters_;  ///< by worker id
};

}  // namespace troupe::learner
