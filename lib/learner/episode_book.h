#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/learner/episode_stats.h"
#include "lib/learner/episode_window.h"
#include "lib/learner/learner_config.h"
#include "lib/learner/score.h"
#include "lib/learner/strangers_returns.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/episode_entries.h"

namespace troupe::learner {

/// Episodes that ended in one batch, by the worker that reported them. Plain value.
struct ReportedEpisodes {
  std::vector<sample::FinishedEpisode> own;                               ///< by this user's own workers
  std::map<uint64_t, std::vector<sample::FinishedEpisode>> by_strangers;  ///< by worker id (StrangersReturns)

  int64_t count() const;
  /// In no particular order.
  std::vector<sample::FinishedEpisode> All() const;
};

/// What a run's last episodes came to, and which of its states is the best by it. Made and owned by UpdateCycle,
/// confined to the update thread.
///
/// All episodes are shown. What decides something, `best` and stop.episode_return, are the evaluations of a run that
/// evaluates while it trains, which the learner plays itself. Else it is the last 100 episodes of its own workers; of a
/// run that has none, what StrangersReturns makes of the others.
class EpisodeBook {
 public:
  /// `config` outlives it.
  explicit EpisodeBook(const LearnerConfig* config);

  /// Goes on with a saved run whose policies are those of `table`.
  void Restore(const LearnerState& state, const policy::PolicyTable& table);
  /// Episodes that ended in one batch.
  void Add(ReportedEpisodes finished);
  /// The slot gets another policy: what was played there counts for none.
  void ForgetPolicy(policy::PolicySlot slot);
  /// An evaluation of the present weights: decides `best` at the next Save. Why the run is to end by it; nullopt: it
  /// goes on.
  std::optional<std::string> ReportEvaluation(const EpisodeStats& evaluation, const policy::PolicyTable& table);
  /// Why the run is to end by the returns in training; nullopt: it goes on.
  std::optional<std::string> StopByTraining(const policy::PolicyTable& table) const;
  /// Once, when returns that would decide something do not, since too few strangers report: what to do about it.
  std::optional<std::string> TakeWarning(const policy::PolicyTable& table);

  /// What the last episodes came to, into `record`.
  void Tell(policy::PolicyTablePtr table, ProgressRecord* record);
  /// Fills the state's episodes and `best`. Whether this state is the best so far.
  bool Save(const policy::PolicyTable& table, LearnerState* state);
  /// Fills `best` alone, by an evaluation that was reported or by training: also of a state of before, which an
  /// evaluation played. Whether it is the best so far.
  bool Judge(const policy::PolicyTable& table, LearnerState* state);

 private:
  /// By what `best` is decided now.
  std::optional<Score> BestBy() const;
  /// The score that decides in training; nullopt: none yet.
  std::optional<double> TrainingScore(const Score& score, const policy::PolicyTable& table) const;

  /// Keeps their episodes apart from now on.
  void MeetStrangers();
  /// State of a run with strangers.
  struct Strangers {
    EpisodeWindow own;  ///< without their episodes
    StrangersReturns returns;
  };

  const LearnerConfig& config_;
  EpisodeWindow window_;
  std::optional<Strangers> strangers_;  ///< nullopt: window_ has no episode of one
  bool warned_ = false;
  std::optional<EpisodeStats> evaluation_;  ///< reported since the last Save
  bool rewards_differ_ = false;             ///< stays so
  bool has_best_ = false;
  double best_return_ = 0;
  std::optional<double> best_window_;  ///< ProgressRecord::best
};

}  // namespace troupe::learner
