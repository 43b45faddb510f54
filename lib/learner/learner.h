#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/clock.h"
#include "lib/base/metric_sink.h"
#include "lib/base/mutex.h"
#include "lib/learner/accounting.h"
#include "lib/learner/assembler.h"
#include "lib/learner/checkpoint.h"
#include "lib/learner/env_health.h"
#include "lib/learner/episode_window.h"
#include "lib/learner/grant_scheduler.h"
#include "lib/learner/ingest.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/policy_view.h"
#include "lib/learner/ports.h"
#include "lib/learner/progress.h"
#include "lib/learner/score.h"
#include "lib/learner/stop_conditions.h"
#include "lib/learner/trainer.h"
#include "lib/learner/worker_registry.h"
#include "lib/sample/batch_schema.h"

namespace troupe::learner {

/// What a learner is made for. Plain value.
struct LearnerConfig {
  LearnerOptions options;
  StopOptions stop;
  sample::BatchSchema schema;
  sample::BatchLimits limits;
  /// The policies that the run begins or goes on with: their specs instead of the schema's, their `trains` instead of
  /// the options'. nullptr: the schema's policies, for ever.
  policy::PolicyTablePtr policies;
  uint64_t learner_epoch = 1;             ///< durable boot counter of the run, from 1
  std::vector<std::string> info_columns;  ///< EnvSpec::info_columns
  bool best_by_evaluation = false;        ///< `best` is the best evaluation; else the best 100-episode mean
  std::optional<Score> best_by;           ///< nullopt: the sum, until agents' rewards differ, and nothing from then on
};

/// What a learner works with; everything must outlive it.
struct LearnerDeps {
  Trainer* trainer = nullptr;
  WeightPublisher* publisher = nullptr;
  base::MetricSink* metrics = nullptr;   ///< may be nullptr; called on the update thread
  ProgressListener* progress = nullptr;  ///< may be nullptr; called on the update thread
  base::Clock* clock = &base::Clock::Real();
  tensor::TensorAllocator* allocator = &tensor::TensorAllocator::Pageable();  ///< of the training buffers
};

/// What a Step did.
struct StepOutcome {
  enum class Kind {
    kWaiting,     ///< the timeout passed without a complete train batch
    kUpdated,     ///< one update, published
    kStopped,     ///< a stop condition holds: there will be no further update
    kDrained,     ///< a drain was asked for and nothing complete is left to train on
    kEnvsFailed,  ///< as kDrained, since environments fail: `reason` says where and why
    kFailed,      ///< the trainer failed or the run cannot go on: see `status`
  };
  Kind kind = Kind::kWaiting;
  std::string reason;   ///< of kStopped, kDrained and kEnvsFailed
  absl::Status status;  ///< of kFailed
  /// Of kFailed: policies and counters are as before what failed, so that SnapshotState may be saved.
  bool state_is_whole = false;
};

/// A state to save, and whether it is the best so far.
struct LearnerSnapshot {
  LearnerState state;
  bool is_best = false;
};

/// The learner without its wires: workers join and hand in fragments, one update thread calls Step, weights go out to a
/// WeightPublisher. Decisions are made by GrantScheduler, Ingest, SequenceTracker and Assembler; this class locks,
/// waits and calls out. Made and owned by services/; starts no thread.
///
/// Thread-safety: Join, Leave, Submit, SubmitUndecodable, Heartbeat, Tick, RequestDrain and Status may be called from
/// any thread and never block for long (Submit validates, outside the lock), and so may Policies. Restore, Start, Step,
/// ChangePolicies, SnapshotState and ReportEvaluation belong to the update thread; Step blocks up to its timeout for
/// samples and then for an update. Ports, publisher, sink and listener are called without the lock.
///
/// States: made -> (Restore) -> started -> stopped or drained or failed, which are final.
///
/// Invariants: 1. CheckConservation holds for the counters at every moment. 2. Iteration k trains with weights version
/// k, from rows made with versions >= k - max_policy_lag of this learner epoch, then publishes what it changed and
/// announces version k + 1, which every policy has from then on. 3. A
/// fragment is acknowledged only after it is stored and the watermark has moved, both in one critical section.
/// 4. A fragment that waits has rows of policies only that are in their slots now: what arrives is judged by the table
/// of that moment, and a slot is released only when no fragment names it.
///
/// Capacity: ingest_budget_bytes of fragments; a fragment beyond it is refused with RESOURCE_EXHAUSTED and must be
/// offered again. Shutdown: RequestDrain, Step until kDrained, SnapshotState; the destructor just lets go.
class Learner {
 public:
  /// INVALID_ARGUMENT for options out of range, an ingest budget that is too small, a schema whose critic inputs do not
  /// fit, or learner epoch 0.
  static absl::StatusOr<std::unique_ptr<Learner>> Create(LearnerConfig config, const LearnerDeps& deps);
  ~Learner();

  /// Continues a saved run: counters, lanes, watermarks, window, policies. What was queued then is booked as rolled
  /// back. FAILED_PRECONDITION after Start, or unless the config's learner epoch is above the state's; INVALID_ARGUMENT
  /// for policies that do not fit.
  absl::Status Restore(const LearnerState& state);
  /// Publishes the first weights, stamped (learner epoch, iteration), and begins to grant. Errors are the trainer's.
  absl::Status Start();

  /// Registers a worker; its ticket goes with everything it brings. An id that is connected is fenced off: its old
  /// ticket is void from now on. `port` gets the grants, some perhaps before Join returns. CANCELLED when the run
  /// drains or has ended, INVALID_ARGUMENT for an absurd sequence number.
  absl::StatusOr<WorkerTicket> Join(const WorkerHello& hello, std::shared_ptr<WorkerPort> port);
  /// The stream ended. What the worker had not delivered is granted to others. A void ticket is ignored.
  void Leave(const WorkerTicket& ticket);
  /// One fragment. The caller sends the acknowledgement on (WorkerPort::SendAck is not called from here). Errors give
  /// the fragment no disposition: FAILED_PRECONDITION the ticket is void, end the stream; RESOURCE_EXHAUSTED offer it
  /// again later; INVALID_ARGUMENT a sequence number out of the window, end the stream.
  absl::StatusOr<sample::FragmentAck> Submit(const WorkerTicket& ticket, uint64_t sequence,
                                             sample::MultiAgentBatchPtr batch);
  /// The same for bytes that are no fragment: INVALID with `reason`. Errors as Submit's.
  absl::StatusOr<sample::FragmentAck> SubmitUndecodable(const WorkerTicket& ticket, uint64_t sequence,
                                                        const std::string& reason);
  /// A sign of life, perhaps with how the worker's environments do (counters >= 0): the first incident of each kind is
  /// logged. FAILED_PRECONDITION when the ticket is void, INVALID_ARGUMENT for counters that no worker reaches.
  absl::Status Heartbeat(const WorkerTicket& ticket, const std::optional<sample::EnvReport>& report = std::nullopt);
  /// Lets silent workers go, gives the work of grants that were out for too long to others, and begins when the join
  /// timeout is over. Call about once a second.
  void Tick();

  /// Waits up to `timeout` for a complete train batch and makes one update from it.
  StepOutcome Step(absl::Duration timeout);
  /// Makes `next`, which follows from Policies() by changes, the policies of the run: what it brings is made in the
  /// trainer and published first, every grant from then on carries it, and rows of a policy that it replaced are STALE.
  /// `added`: exactly the policies that it brings. One that it removes plays on in the episodes in progress; its slot
  /// is released by a later Step, in a revision of its own, when no worker can bring rows of it any more. Between
  /// Steps. Whole or not at all: FAILED_PRECONDITION before Start or for a learner without a table, UNAVAILABLE once
  /// the run is about to end, INVALID_ARGUMENT when `next` or `added` do not follow; else the trainer's.
  absl::Status ChangePolicies(const policy::PolicyTablePtr& next, std::vector<NewPolicy> added);
  /// The policies as they are now.
  policy::PolicyTablePtr Policies() const;

  /// Everything to resume from. Between Steps, after Start. Errors are the trainer's.
  absl::StatusOr<LearnerSnapshot> SnapshotState();
  /// An evaluation of the present weights: decides `best` at the next SnapshotState.
  void ReportEvaluation(const EpisodeStats& evaluation);

  /// No further grants; workers are asked to hand in and leave. Idempotent.
  void RequestDrain(const std::string& reason);
  LearnerStatus Status() const;

 private:
  Learner(LearnerConfig config, const LearnerDeps& deps, PolicyViewPtr view);

  /// A grant and the port it goes to.
  struct Mail {
    std::shared_ptr<WorkerPort> port;
    sample::Grant grant;
  };
  /// A grant that expired, and the port of the worker that had it.
  struct Notice {
    std::shared_ptr<WorkerPort> port;
    ExpiredGrant expired;
  };
  struct Outbox {
    std::vector<Notice> expired;  ///< sent before the grants
    std::vector<Mail> grants;
  };
  enum class State {
    kMade,      ///< not started
    kStarted,   ///< granting and training
    kDraining,  ///< trains what is complete, grants nothing
    kStopped,   ///< a stop condition held
    kFailed,    ///< see failure_
  };

  std::unique_ptr<GrantScheduler> MakeScheduler(int64_t iteration, const std::vector<LaneState>& lanes) const;
  /// What follows from the events so far: wakes the update thread, ends granting, gives what to send after the lock.
  Outbox ScheduleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Sends it, and warns of what expired. Without the lock.
  static void Send(const Outbox& outbox);
  /// Takes a report in; what there is to say of it, after the lock.
  absl::StatusOr<std::vector<std::string>> ReportLocked(WorkerRegistry::Worker& worker, const sample::EnvReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Ends the run where environments fail too often.
  void EndIfEnvsFailLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Ends granting when what has arrived is all the run needs.
  void CloseIfEnoughLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasCompleteLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration WallClockLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Waits; an outcome when there is nothing to train on.
  std::optional<StepOutcome> AwaitBatch(absl::Duration timeout);
  std::optional<StepOutcome> EndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  StepOutcome Train(std::vector<CheckedFragment> fragments, int64_t iteration);
  /// Publishes version `n` of the policies that `reports` says were trained, or, with nullptr, all there is, stamped
  /// anew; then announces the version as a whole.
  absl::Status PublishVersion(int64_t n, const std::vector<PolicyUpdateReport>* reports);
  /// The policy's weights as version (learner epoch, n), which they must have unless `stamp`.
  absl::StatusOr<policy::WeightSnapshotPtr> VersionOf(policy::PolicySlot slot, int64_t n, bool stamp);
  PolicyViewPtr View() const;
  /// Validates, by the policies of `view`.
  CheckedFragment CheckBy(const PolicyView& view, const sample::MultiAgentBatchPtr& batch) const;
  /// Adds the policies to the trainer, all or none; their first weights, nullptr for a class without.
  absl::StatusOr<std::vector<policy::WeightSnapshotPtr>> AddToTrainer(const policy::PolicyTable& next,
                                                                      std::vector<NewPolicy> added, int64_t iteration);
  /// Removed policies of which no rows can come any more.
  std::vector<policy::PolicySlot> DrainedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseDrained();
  /// What a checkpoint says of the policies.
  absl::Status SavePolicies(LearnerState* state);
  void ReportMetrics(const ProgressRecord& record);
  /// By what `best` is decided now.
  std::optional<Score> BestBy() const;
  /// What the last episodes came to, into `record`.
  void TellEpisodes(ProgressRecord* record);

  const LearnerConfig config_;
  const LearnerDeps deps_;

  // Confined to the update thread.
  Assembler assembler_;
  EpisodeWindow window_;
  std::optional<EpisodeStats> evaluation_;  ///< reported since the last snapshot
  bool rewards_differ_ = false;             ///< stays so
  bool has_best_ = false;
  double best_return_ = 0;
  std::optional<double> best_window_;         ///< ProgressRecord::best
  double wait_s_ = 0;                         ///< waited for samples since the last update
  std::vector<LaneState> retired_lanes_;      ///< of a restored run with more environments
  std::vector<policy::PolicyId> trained_as_;  ///< by policy slot; see LearnerState

  mutable base::Mutex mutex_;
  base::CondVar changed_;  ///< a batch became complete, or the run is to end
  State state_ ABSL_GUARDED_BY(mutex_) = State::kMade;
  PolicyViewPtr view_ ABSL_GUARDED_BY(mutex_);  ///< changed by the update thread alone
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool updating_ ABSL_GUARDED_BY(mutex_) = false;
  bool drain_sent_ ABSL_GUARDED_BY(mutex_) = false;
  Accounting accounting_ ABSL_GUARDED_BY(mutex_);
  WorkerRegistry registry_ ABSL_GUARDED_BY(mutex_);
  EnvHealth env_health_ ABSL_GUARDED_BY(mutex_);
  bool envs_failed_ ABSL_GUARDED_BY(mutex_) = false;  ///< it drains for that
  std::unique_ptr<GrantScheduler> scheduler_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Ingest> ingest_ ABSL_GUARDED_BY(mutex_);
  int64_t iteration_ ABSL_GUARDED_BY(mutex_) = 0;       ///< updates done
  int64_t noted_complete_ ABSL_GUARDED_BY(mutex_) = 0;  ///< first_incomplete() when it was last looked at
  RunCounts trained_ ABSL_GUARDED_BY(mutex_);
  int64_t arrived_env_steps_ ABSL_GUARDED_BY(mutex_) = 0;  ///< accepted and not yet trained on
  ProgressRecord last_ ABSL_GUARDED_BY(mutex_);
  int64_t episodes_ ABSL_GUARDED_BY(mutex_) = 0;
  double earlier_wall_clock_s_ ABSL_GUARDED_BY(mutex_) = 0;
  /// When the first fragment of this epoch was accepted: until then workers start and environments are made.
  std::optional<absl::Duration> sampling_since_ ABSL_GUARDED_BY(mutex_);
  int64_t first_iteration_ ABSL_GUARDED_BY(mutex_) = 0;  ///< of this epoch
  /// Where the span of the next rate begins: at the update before it, of this epoch's first at the first grants, before
  /// which nobody samples. nullopt: nothing is granted yet. Not at sampling_since_: the fragment that begins that is of
  /// the first update, and was sampled before.
  std::optional<absl::Duration> rate_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::learner
