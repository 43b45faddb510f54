#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lib/learner/accounting.h"
#include "lib/learner/checkpoint.h"
#include "lib/learner/episode_stats.h"
#include "lib/learner/row_ages.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_table.h"
#include "lib/sample/env_report.h"
#include "lib/sample/ids.h"

namespace troupe::learner {

/// Where a run stands after an update: a line of progress.jsonl. Plain value.
struct ProgressRecord {
  int64_t env_steps = 0;    ///< trained on, of the whole run
  int64_t agent_steps = 0;  ///< trained on, of the whole run
  int64_t updates = 0;
  int64_t episodes = 0;           ///< ended, of the whole run
  double wall_clock_s = 0;        ///< of all learner epochs together
  double env_steps_per_s = 0;     ///< since the update before; of a learner epoch's first, since its first grants
  double update_s = 0;            ///< the trainer alone
  std::optional<double> train_s;  ///< of the policies that trained, joined by train_time_aggregator
  double assemble_s = 0;
  double wait_s = 0;    ///< the update thread waiting for samples
  EpisodeStats window;  ///< of the last 100 episodes
  /// Agents of an episode got different rewards, ever; of those that share one (common_reward) never.
  bool rewards_differ = false;
  std::string best_by;         ///< Score::Text by which `best` is told; empty: none
  std::optional<double> best;  ///< largest mean of it over a full window so far
  // Means over the last 100 episodes; nullopt before the first one ended.
  std::optional<double> return_sum;
  std::optional<double> return_mean;
  std::optional<double> episode_length;
  /// The trainer's metrics by tag (docs/metrics.md): means over the policies, then those of the whole.
  std::vector<std::pair<std::string, double>> losses;
  std::vector<std::pair<std::string, double>> agent_losses;  ///< `<agent id>/<loss>`
  int64_t minibatch_steps = 0;                               ///< of the update, all policies
  int64_t skipped_steps = 0;                                 ///< refused for a non-finite loss or gradient
  double policy_lag = 0;                                     ///< mean over the update's rows
  int32_t workers = 0;                                       ///< connected
  RowCounters rows;
  RowAges waited_ages;                      ///< of `rows.waited`, in this learner epoch
  policy::BySlot<RowCounters> policy_rows;  ///< in this learner epoch
  std::vector<std::string> losing_rows;     ///< AgingWatch::Losing
  /// By learn group, ascending id; in this learner epoch. nullptr before the first update.
  std::shared_ptr<const std::vector<GroupRows>> groups;
  sample::EnvCounters env_counters;  ///< of all workers that this learner has heard of
  int64_t expired_grants = 0;        ///< were out for too long; in this learner epoch
  policy::PolicyTablePtr table;      ///< the policies after the update; nullptr before the first
  std::shared_ptr<const std::vector<PolicyUpdateReport>> policies;  ///< of the update; nullptr before the first
};

/// Hears of every update. Called on the update thread, without a lock; may block as long as training may wait.
class ProgressListener {
 public:
  virtual ~ProgressListener() = default;
  virtual void OnProgress(const ProgressRecord& record) = 0;
};

/// One connected worker, for Monitor.Status.
struct WorkerStatus {
  sample::WorkerId id;
  sample::WorkerEpoch epoch;
  int32_t lanes = 0;              ///< environments it has
  int64_t outstanding_steps = 0;  ///< granted, not arrived
  int64_t accepted_rows = 0;      ///< in this learner epoch
  int64_t expired_grants = 0;     ///< were out for too long; in this learner epoch
  sample::RecentEpisodes recent_episodes;
  std::string gets_no_work;  ///< why, where too many of its episodes failed
  double policy_lag = 0;     ///< newest version minus that of its newest fragment; 0 before the first
  absl::Duration since_last_seen;
};

/// Everything Monitor.Status shows. Plain value.
struct LearnerStatus {
  std::string state;   ///< "waiting for workers", "sampling", "updating", "draining", "stopped" or "failed"
  std::string reason;  ///< why it drains, stopped or failed
  uint64_t learner_epoch = 0;
  ProgressRecord progress;  ///< of the last update; with rows, workers, env counters and wall clock of now
  RowBooks books;           ///< its rows, by learn group
  FragmentCounters fragments;
  policy::BySlot<RowCounters> policy_rows;  ///< in this learner epoch
  std::vector<WorkerStatus> workers;        ///< by id
  int64_t queue_bytes = 0;
  int64_t queue_budget_bytes = 0;
};

}  // namespace troupe::learner
