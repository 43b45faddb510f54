#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/learner/accounting.h"
#include "lib/learner/env_health.h"
#include "lib/learner/ingest.h"
#include "lib/learner/learner_config.h"
#include "lib/learner/policy_view.h"
#include "lib/learner/ports.h"
#include "lib/learner/progress.h"
#include "lib/learner/sampling_plan.h"
#include "lib/learner/stop_conditions.h"
#include "lib/learner/worker_registry.h"

namespace troupe::learner {

/// What follows from events for workers: sent after the lock.
struct Outbox {
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
  std::vector<Notice> expired;  ///< sent before the grants
  std::vector<Mail> grants;
  std::vector<KeptFragmentPtr> let_go;  ///< destroyed with it

  /// Sends it, and warns of what expired. Without the lock.
  void Send() const;
};

/// How a run ends, or ended. Plain value.
struct RunEnding {
  std::string reason;  ///< why it drains, stopped or failed
  absl::Status failure;
  bool drain_sent = false;
  /// Why it drains, as Step will say it.
  StepOutcome::Kind drained_as = StepOutcome::Kind::kDrained;
};

/// From when a run's times count. Plain value.
struct RunTimes {
  double earlier_wall_clock_s = 0;  ///< of the run's earlier learners
  /// When the first fragment of this epoch was accepted: until then workers start and environments are made.
  std::optional<absl::Duration> sampling_since;
  /// Where the span of the next rate begins: at the update before it, of this epoch's first at the first grants, before
  /// which nobody samples. nullopt: nothing is granted yet. Not at sampling_since: the fragment that begins that is of
  /// the first update, and was sampled before.
  std::optional<absl::Duration> rate_since;
};

/// The trainer's feeds, and before them the run's own where a group is in none of them.
std::vector<FeedSpec> AllFeeds(const LearnerConfig& config, const Trainer& trainer, const policy::PolicyTable& table);
/// Iterations that the run may sample beyond those that are done: the feeds' least.
int64_t MaxAhead(const std::vector<FeedSpec>& feeds);

/// What the two halves of a learner share: WorkerDesk brings in what workers say, UpdateCycle takes out what is trained
/// on, and both tell workers what follows. Made and owned by Learner, before both.
///
/// Thread-safety: everything that changes is guarded by `mutex`, the one lock of a learner; what ends in Locked needs
/// it. Under it nothing blocks, sends, logs, calls a port, publisher, trainer or listener, or destroys a fragment.
///
/// Invariants, whenever `mutex` is free: 1. CheckConservation holds for the books: a fragment's disposition, its place
/// in the batch sources, its worker's watermark and the fate of its rows change together. 2. Every worker that the plan
/// has is connected in the registry, and the other way round. 3. `view` is the policies of the plan's revision and of
/// the books' groups. The update thread alone changes it: whoever checked a fragment by another checks it again.
/// 4. What the plan gave under the lock is sent after it, so two grants may leave in another order than they were made;
/// ids and ordinals do not depend on it. 5. `version` is out, or on its way out while `updating`; `batches` is how many
/// were selected, in the one that is being trained on; trained.updates how many were trained on.
///
/// Three numbers: iterations are the sampling plan's, batches the sources', versions the publications' of all feeds
/// together. Where all groups take whole iterations once, a batch and a version follow from each iteration, and between
/// updates all three are equal; nothing but what sets them says so.
class RunState {
 public:
  enum class Phase {
    kMade,      ///< not started
    kStarted,   ///< granting and training
    kDraining,  ///< trains what is complete, grants nothing
    kStopped,   ///< a stop condition held
    kFailed,    ///< see `ending.failure`
  };

  /// `config` and `deps` outlive it; the config is checked, the deps are complete.
  RunState(const LearnerConfig* config, const LearnerDeps* deps, PolicyViewPtr view);

  /// Plan and sources begin anew where `start` is; batches and versions count on from it.
  void BeginAtLocked(const LearnerState& start) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  /// Acts on the events so far: wakes the update thread, gives what to send after the lock.
  [[nodiscard]] Outbox ScheduleLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  /// Ends the run where environments fail too often.
  void EndIfEnvsFailLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  /// Drains a run that cannot succeed: `as` is kEnvsFailed or kNothingTrained. Nothing happens to one that ends
  /// already.
  void GiveUpLocked(StepOutcome::Kind as, std::string why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void FailLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  /// Ends the run if it has not ended otherwise.
  void StopLocked(std::string why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  /// Not asked to end, nor at its end: workers may come.
  bool GoesOnLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return phase == Phase::kMade || phase == Phase::kStarted;
  }
  bool HasBatchLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return ingest->NumReady() > 0; }
  absl::Duration WallClockLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  PolicyViewPtr View() const;
  /// By policy slot, in this learner epoch.
  policy::BySlot<RowCounters> PolicyRowsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  LearnerStatus Status() const;

  const LearnerConfig& config;
  base::Clock& clock;
  const std::vector<FeedSpec> feeds;  ///< at least one; their sources are Ingest's, in the same order

  mutable base::Mutex mutex;
  base::CondVar changed;  ///< a batch became ready, or the run is to end
  Phase phase ABSL_GUARDED_BY(mutex) = Phase::kMade;
  bool updating ABSL_GUARDED_BY(mutex) = false;
  RunEnding ending ABSL_GUARDED_BY(mutex);

  PolicyViewPtr view ABSL_GUARDED_BY(mutex);
  Accounting accounting ABSL_GUARDED_BY(mutex);
  WorkerRegistry registry ABSL_GUARDED_BY(mutex);
  EnvHealth env_health ABSL_GUARDED_BY(mutex);
  TrackedBook tracked ABSL_GUARDED_BY(mutex);
  std::unique_ptr<SamplingPlan> plan ABSL_GUARDED_BY(mutex);
  std::unique_ptr<Ingest> ingest ABSL_GUARDED_BY(mutex);

  int64_t batches ABSL_GUARDED_BY(mutex) = 0;  ///< selected, of the whole run
  int64_t version ABSL_GUARDED_BY(mutex) = 0;  ///< of every policy: (learner epoch, version) is out
  RunCounts trained ABSL_GUARDED_BY(mutex);
  int64_t first_updates ABSL_GUARDED_BY(mutex) = 0;      ///< of them, before this learner epoch
  int64_t arrived_env_steps ABSL_GUARDED_BY(mutex) = 0;  ///< accepted and not yet trained on
  int64_t episodes ABSL_GUARDED_BY(mutex) = 0;
  ProgressRecord last ABSL_GUARDED_BY(mutex);
  RunTimes times ABSL_GUARDED_BY(mutex);

 private:
  std::string StateWordsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  int64_t noted_batches_ ABSL_GUARDED_BY(mutex) = 0;  ///< selected or ready, when that was last looked at
};

}  // namespace troupe::learner
