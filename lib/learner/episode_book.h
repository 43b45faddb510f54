#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lib/learner/episode_stats.h"
#include "lib/learner/episode_window.h"
#include "lib/learner/learner_config.h"
#include "lib/learner/score.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/multi_agent_batch.h"

namespace troupe::learner {

/// What a run's last episodes came to, and which of its states is the best by it. Made and owned by UpdateCycle,
/// confined to the update thread.
class EpisodeBook {
 public:
  /// `config` outlives it.
  explicit EpisodeBook(const LearnerConfig* config);

  /// Goes on with a saved run whose policies are those of `table`.
  void Restore(const LearnerState& state, const policy::PolicyTable& table);
  /// Episodes that ended in one batch.
  void Add(std::vector<sample::FinishedEpisode> finished);
  /// The slot gets another policy: what was played there counts for none.
  void ForgetPolicy(policy::PolicySlot slot) { window_.ForgetPolicy(slot); }
  /// An evaluation of the present weights: decides `best` at the next Save.
  void ReportEvaluation(const EpisodeStats& evaluation) { evaluation_ = evaluation; }

  /// What the last episodes came to, into `record`.
  void Tell(policy::PolicyTablePtr table, ProgressRecord* record);
  /// Mean of an info column over the window; nullopt when no episode in it has a value.
  std::optional<double> info(int32_t column) const { return window_.info(column); }
  /// Fills the state's episodes and `best`. Whether this state is the best so far.
  bool Save(const policy::PolicyTable& table, LearnerState* state);

 private:
  /// By what `best` is decided now.
  std::optional<Score> BestBy() const;

  const LearnerConfig& config_;
  EpisodeWindow window_;
  std::optional<EpisodeStats> evaluation_;  ///< reported since the last Save
  bool rewards_differ_ = false;             ///< stays so
  bool has_best_ = false;
  double best_return_ = 0;
  std::optional<double> best_window_;  ///< ProgressRecord::best
};

}  // namespace troupe::learner
