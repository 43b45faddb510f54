#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/ids.h"
#include "lib/policy/learn_group.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::learner {

/// Row counters of a run. Conservation, checked after every fault test:
///   received = accepted + duplicate + stale + invalid;  accepted = trained + queued + dropped + rolled_back.
struct RowCounters {
  int64_t received = 0;
  int64_t accepted = 0;
  int64_t duplicate = 0;
  int64_t stale = 0;
  int64_t invalid = 0;
  int64_t trained = 0;
  int64_t queued = 0;       ///< accepted, waiting for their update
  int64_t dropped = 0;      ///< accepted, but not trained on: aged, or let go
  int64_t rolled_back = 0;  ///< accepted or trained after the checkpoint that a restart went back to
  // Checkpoints of earlier versions do not know these:
  int64_t aged = 0;    ///< of `dropped`: too old at assembly
  int64_t waited = 0;  ///< of `trained`: older than others may be, since they waited for their outcome
};

/// One environment's place in its sequence of episodes.
struct LaneState {
  base::EnvId env_id;
  uint32_t next_episode = 0;
};

/// Everything that makes a resumed run equal an uninterrupted one. Plain value, snapshotted by the learner between
/// updates and written by lib/storage.
struct LearnerState {
  int64_t iteration = 0;  ///< updates done, of all feeds together
  // Where groups do not all take each iteration once; nullopt: as many as updates. Checkpoints of earlier versions do
  // not know them.
  std::optional<int64_t> iterations = std::nullopt;  ///< of the sampling plan, that need no further update
  std::optional<int64_t> version = std::nullopt;     ///< that was published
  std::map<std::string, int64_t> feed_updates = {};  ///< by FeedSpec::name
  int64_t env_steps = 0;                             ///< trained
  int64_t agent_steps = 0;                           ///< trained
  int64_t episodes = 0;                              ///< finished
  double wall_clock_s = 0;                           ///< of all learner epochs together
  uint64_t learner_epoch = 0;
  RowCounters rows;
  std::vector<LaneState> lanes;             ///< ascending env_id
  std::map<uint64_t, uint64_t> watermarks;  ///< worker id -> highest contiguous sequence that has a disposition
  std::vector<double> recent_return_sums;   ///< window of the last 100 episodes, oldest first
  std::vector<double> recent_lengths;
  std::vector<uint8_t> recent_by_strangers;                 ///< same window; 1: EpisodeWindow's by_stranger. Or empty
  std::vector<std::vector<double>> recent_agent_returns;    ///< by agent slot, same window; NaN when absent
  std::vector<std::vector<int32_t>> recent_agent_policies;  ///< who played it: a policy slot, -1: unknown; or empty
  bool rewards_differ = false;                              ///< agents of an episode got different rewards, ever
  bool has_best = false;
  double best_return = 0;                     ///< of the checkpoint `best`
  std::string best_by = "sum";                ///< Score::Text of best_return; empty: there is no `best`
  std::optional<double> best_window;          ///< ProgressRecord::best, by `best_by`; nullopt: none yet, or unknown
  std::vector<policy::PolicyState> policies;  ///< by policy slot; a free slot has an empty one
  std::vector<policy::GroupState> groups;     ///< of the learn groups that keep something beside their policies
  policy::PolicyTablePtr table;               ///< the policies and their mapping; nullptr: as the run began
  /// By policy slot, with `table`: the policy of the run's configuration that it is trained as.
  std::vector<policy::PolicyId> trained_as;

  int64_t sampled_iterations() const { return iterations.value_or(iteration); }
  int64_t published_version() const { return version.value_or(iteration); }
  int64_t updates_of(const std::string& feed) const {
    const auto found = feed_updates.find(feed);
    return found == feed_updates.end() ? iteration : found->second;
  }
};

/// Writes and reads LearnerState; implemented in lib/storage. Called from the checkpoint thread; may block on the disk.
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;
  /// Durable when it returns OK. `is_best` also moves `best`; a state without `best_by` removes it.
  virtual absl::Status Save(const LearnerState& state, bool is_best) = 0;
  /// A checkpoint at `path`, which is absolute and outside the run's folder; durable when it returns OK. Replaces a
  /// checkpoint that is there. ALREADY_EXISTS: something else is; NOT_FOUND: its folder is not there; INVALID_ARGUMENT:
  /// `path` lies in a run.
  virtual absl::Status SaveTo(const LearnerState& state, const std::string& path) = 0;
  /// Removes all checkpoints but the newest `keep` (at least 1), the newest and the best; how many it has removed.
  virtual absl::StatusOr<int64_t> Prune(int keep) = 0;
};

}  // namespace troupe::learner
