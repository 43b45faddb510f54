#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/learner/checked_fragment.h"
#include "lib/learner/checkpoint.h"
#include "lib/learner/grant_limit.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/sampling_plan.h"
#include "lib/learner/worker_standings.h"
#include "lib/sample/grant.h"

namespace troupe::learner {

/// The sampling plan: in rounds, or free-running.
///
/// *In rounds*, every environment has its part in each iteration, one iteration after the other. Iteration k opens when
/// those below k - max_ahead are done and published, whatever of those after them has arrived: so up to 1 + max_ahead
/// of them are granted, and a worker that has handed in one goes on with the next without waiting for the network.
/// Every environment (lane) owes a fixed number of steps to each. Lanes are spread evenly over the workers when an
/// iteration opens, moving as few as possible; a lane that moves starts a fresh episode. What a worker leaves
/// unfinished is granted at once to the others, or to the next that joins. Each grant of a lane has ordinals of
/// episodes of its own, above those of the grants that are out, so that the order in which grants arrive does not
/// matter.
///
/// No iteration opens that the run's stop by env steps or updates leaves no need for.
///
/// Counted by agent steps, nobody knows ahead how many env steps an iteration needs. It is then sampled in rounds: each
/// grants every environment the same number of env steps (to one), at least one, and as many as could not go beyond the
/// batch if all agents acted in each; when all of a round has arrived and agent steps are missing, there is another.
/// How many rounds there are follows from the data alone, not from who sampled it or when it came.
///
/// *Free-running* (Options::free_running), no worker waits for another. Each has up to kGrantsAhead grants, of all its
/// lanes with as many steps as a round would ask of them, and gets the next one when it hands one in. An iteration is
/// the data of a batch in the order in which it arrived, whoever sampled it; a fragment that goes beyond the batch is
/// part of it as a whole. What is granted or has arrived, and is not done, is never more than 1 + max_ahead batches.
/// So a slow worker delivers less, and a slow learner slows the workers down.
///
/// A grant has an age, which begins when it is sent (for a worker that failed at the grant before: when that one was
/// sent). Beyond its limit (GrantLimit, WorkerStandings) it expires, and its work goes to others. Ages grow from
/// one Advance to the next: a pause of more than kLongestGap between two counts as kTickOfPause, for a learner that was
/// stopped took nothing in.
///
/// Invariants: 1. The accepted steps of a complete iteration are exactly train_batch_size (complete_episodes and
/// free-running: at least); counted by agent steps, at least train_batch_size and fewer than num_envs * num_agents
/// more.
/// 2. No episode ordinal of a lane is granted to two workers, or twice. 3. A lane's new grants are its owner's. 4. As
/// long as Advance is called every second, an iteration of a plan in rounds waits for no worker longer than for its
/// limit, and for all that never deliver together as WorkerStandings says. Not thread-safe.
class GrantScheduler final : public SamplingPlan {
 public:
  struct Options {
    int32_t num_envs = 1;
    int64_t train_batch_size = 1;
    CountStepsBy count_steps_by = CountStepsBy::kEnvSteps;
    int32_t num_agents = 1;     ///< most agent steps of an env step
    int64_t max_ahead = 0;      ///< iterations beyond those that are done
    bool free_running = false;  ///< max_ahead is at least 1
    bool complete_episodes = false;
    int32_t num_workers = 1;  ///< waited for before the first grant; 0 is 1
    absl::Duration join_timeout = absl::Seconds(10);
    GrantTimeout grant_timeout;
    StopOptions stop = {};
    int64_t env_steps_before = 0;  ///< trained on before the first iteration
  };
  static constexpr absl::Duration kLongestGap = absl::Seconds(3);
  static constexpr absl::Duration kTickOfPause = absl::Seconds(1);
  /// Grants that a worker may have at a time in a free-running plan: one that it samples for, and the next.
  static constexpr int64_t kGrantsAhead = 2;
  /// Every step begins at most one episode, unless environments fail: so many more ordinals are a lane's in each grant.
  static constexpr uint32_t kSpareEpisodes = 100;

  /// `lanes` continues a restored run: ordinals by env id, missing ones start at 0.
  GrantScheduler(const Options& options, uint64_t learner_epoch, int64_t first_iteration,
                 const std::vector<LaneState>& lanes);

  void AddWorker(sample::WorkerId worker, absl::Duration now) override;
  void RemoveWorker(sample::WorkerId worker) override;
  void ExcludeWorker(sample::WorkerId worker) override;
  void SetPublished(int64_t done, int64_t n) override;
  void SetPublishing(int64_t n) override { publishing_ = n; }
  void SetRevision(int64_t revision) override { revision_ = revision; }
  void Advance(absl::Duration now) override;
  void Close() override { closed_ = true; }

  Verdict Judge(sample::WorkerId worker, const CheckedFragment& fragment) const override;
  int64_t Accept(sample::WorkerId worker, uint64_t sequence, uint64_t watermark,
                 const CheckedFragment& fragment) override;
  void Expire(sample::WorkerId worker, std::optional<sample::GrantId> grant) override;
  void ExpireIfLive(sample::WorkerId worker, sample::GrantId grant) override;
  void NoteLate(sample::WorkerId worker, sample::GrantId grant) override {
    standings_.CameLate(worker.value(), grant.value());
  }

  std::vector<GrantOrder> Schedule(absl::Duration now) override;
  std::vector<ExpiredGrant> TakeExpired() override { return std::exchange(expired_, {}); }
  absl::Duration NextDeadline() const override;

  int64_t first_incomplete() const override { return rounds_.empty() ? next_iteration_ : rounds_.front().iteration; }
  int64_t EnvStepsBelow(int64_t iteration) const override { return env_steps_below_.lower_bound(iteration)->second; }
  bool closed() const { return closed_; }
  bool started() const override { return started_; }
  std::vector<LaneState> Lanes() const override;
  std::vector<sample::WorkerId> OwnersOfOlderEpisodes(int64_t revision) const override;
  int32_t num_lanes_of(sample::WorkerId worker) const override;
  int64_t outstanding_steps_of(sample::WorkerId worker) const override;
  int64_t expired_grants_of(sample::WorkerId worker) const override { return standings_.expired_of(worker.value()); }
  int64_t expired_grants() const override { return standings_.expired(); }

 private:
  struct Lane {
    uint32_t next_episode = 0;
    uint32_t floor = 0;    ///< lowest ordinal that a fragment of the owner may hold
    uint64_t owner = 0;    ///< worker id, 0: none
    bool fresh = true;     ///< the owner has no running episode in it
    uint32_t newest = 0;   ///< highest ordinal known to be the owner's
    int64_t revision = 0;  ///< it, and those after it, were mapped by policies of at least this one
    int32_t out = 0;       ///< grants of it that are out, also of former owners
    uint32_t limit = 0;    ///< above all ordinals of these
  };
  /// An open iteration.
  struct Round {
    int64_t iteration = 0;
    int64_t min_version = 0;         ///< that its rows are made with
    int64_t env_steps = 0;           ///< accepted
    int64_t agent_steps = 0;         ///< accepted
    bool complete = false;           ///< all has arrived; it waits for the iterations before it
    std::vector<int32_t> ungranted;  ///< by env id
    int64_t owed = 0;                ///< the sum of it
  };
  struct GrantedLane {
    base::EnvId env_id;
    int32_t env_steps = 0;
    int32_t seen = 0;    ///< steps in accepted fragments at which agents acted
    uint32_t floor = 0;  ///< ordinals that may come: [floor, limit)
    uint32_t limit = 0;
  };
  struct OpenGrant {
    uint64_t worker = 0;
    int64_t iteration = 0;
    int64_t min_version = 0;
    std::vector<GrantedLane> lanes;  ///< ascending env id
    int64_t granted = 0;
    int64_t delivered = 0;
    bool last_seen = false;
    uint64_t last_sequence = 0;
    absl::Duration sent;         ///< as age_ was then
    absl::Duration counts_from;  ///< earlier than that after a grant that failed
    absl::Duration limit;
    absl::Duration due() const { return counts_from + limit; }
  };

  Lane& LaneOf(base::EnvId env_id) { return lanes_[env_id.value()]; }
  /// Ends the owner's right to the lane; its next episode is one the owner cannot have begun.
  static void TakeAway(Lane& lane);
  /// True where the next iteration may be sampled now.
  bool MayOpen() const;
  /// The next iteration.
  Round& Begin();
  void Open();
  /// Every lane owes its share of what the iteration still needs.
  void FillRound(Round& round);
  /// Steps of lane `i` where all lanes share so many.
  int32_t ShareOf(size_t i, int64_t env_steps) const;
  Round& RoundOf(const OpenGrant& grant);
  /// A grant of the lane is over.
  static void EndGrant(Lane& lane);
  // For a free-running plan:
  /// Grants what may be sampled now to the workers that have the fewest grants.
  void GrantFreely(std::vector<GrantOrder>* orders);
  /// Spreads the lanes over the workers that may have some now, unless that is how they are.
  void FollowWorkers(absl::Span<const WorkerStandings::Choice> choices);
  /// Env steps that are to be granted yet for `batches` batches from the open one on; 0 or less: none.
  int64_t StepsFor(int64_t batches) const;
  /// Env steps that may be granted now before more is done, and those that the run's stop by env steps or updates
  /// leaves a need for; 0 or less: none.
  int64_t StepsAhead() const;
  int64_t StepsToStop() const;
  /// The steps of a round, as train_batch_size counts them.
  int64_t Counted(const Round& round) const;
  int64_t outstanding_steps() const;
  /// Steps of train_batch_size that an env step may bring.
  int64_t most_per_env_step() const {
    return options_.count_steps_by == CountStepsBy::kAgentSteps ? options_.num_agents : 1;
  }

  /// The grants of what is to be granted of the round.
  void GrantRound(Round& round, std::vector<GrantOrder>* orders);
  void Rebalance();
  /// Gives every orphan to the worker with the least to do.
  void AdoptOrphans();
  void ExpireGrant(uint64_t id);
  /// The same for one that failed: its worker has not earned another limit.
  void FailGrant(uint64_t id);
  void ExpireOverdue();
  /// The first grant was delivered: what was granted before need not wait longer than that shows.
  void ShortenLimits();
  /// Lanes of the worker that no live grant of it has.
  void TakeAwayIdle(uint64_t worker);
  /// Ends grants of which everything up to the last fragment has its disposition; completes iterations.
  void SettleGrants(uint64_t worker, uint64_t watermark);
  void CompleteRounds();
  std::vector<int32_t> RemainingSteps(const OpenGrant& grant) const;
  const GrantedLane* FindLane(const OpenGrant& grant, base::EnvId env_id) const;

  const Options options_;
  const uint64_t learner_epoch_;
  std::vector<Lane> lanes_;                  ///< by env id
  std::deque<Round> rounds_;                 ///< open, ascending and without a gap
  std::map<uint64_t, OpenGrant> grants_;     ///< of the open iterations, by grant id
  std::map<uint64_t, int64_t> outstanding_;  ///< live workers -> granted steps that have not arrived
  uint64_t next_grant_id_;
  int64_t revision_ = 0;    ///< of the policies
  int64_t next_iteration_;  ///< to open
  /// From the last SetPublished on, by iteration: env steps of the run below it.
  std::map<int64_t, int64_t> env_steps_below_;
  bool started_ = false;
  bool closed_ = false;
  bool has_published_ = false;
  int64_t done_ = 0;       ///< iterations below it were trained on
  int64_t published_ = 0;  ///< the newest version
  /// By iteration the version that was out when those below it had been trained on; as far back as the lag reaches.
  std::map<int64_t, int64_t> version_when_done_;
  int64_t publishing_ = 0;
  std::optional<absl::Duration> first_join_;

  GrantLimit limit_;
  int64_t delivered_grants_ = 0;
  WorkerStandings standings_;
  std::optional<absl::Duration> last_now_;              ///< of the last Advance
  absl::Duration age_ = absl::ZeroDuration();           ///< time that has passed, without pauses
  absl::Duration next_due_ = absl::InfiniteDuration();  ///< no grant expires before
  std::vector<ExpiredGrant> expired_;
};

}  // namespace troupe::learner
