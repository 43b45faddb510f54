#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/learner/learner_config.h"
#include "lib/learner/run_state.h"
#include "lib/learner/update_cycle.h"
#include "lib/learner/worker_desk.h"

namespace troupe::learner {

/// The learner without its wires: workers join and hand in fragments, one update thread calls Step, weights go out to a
/// WeightPublisher. The whole of two halves: WorkerDesk, which workers talk to, and UpdateCycle, which is the update
/// thread's, over one RunState. Decisions are made by the sampling plan, Ingest, the batch sources and Assembler; the
/// halves lock, wait and call out. Made and owned by services/; starts no thread.
///
/// Thread-safety: Join, Leave, Submit, SubmitUndecodable, Heartbeat, Tick, RequestDrain and Status may be called from
/// any thread and never block for long (Submit validates, outside the lock), and so may Policies. Restore, Start, Step,
/// ChangePolicies, SnapshotState and ReportEvaluation belong to the update thread; Step blocks up to its timeout for
/// samples and then for an update. Ports, publisher, sink and listener are called without the lock.
///
/// States: made -> (Restore) -> started -> stopped or drained or failed, which are final.
///
/// Invariants: 1. CheckConservation holds for the books at every moment. 2. Iteration k trains weights of version k,
/// from rows made with versions >= k - max_policy_lag of this learner epoch, then publishes what it changed and
/// announces version k + 1, which every policy has from then on. (It is the rule of whole iterations: RunState has the
/// numbers apart.) 3. A fragment is acknowledged only after it is stored and the watermark has moved, both in one
/// critical section. 4. A fragment that waits has rows of policies only that are in their slots now: what arrives is
/// judged by the table of that moment, and a slot is released only when no fragment names it.
///
/// Capacity: ingest_budget_bytes of fragments; a fragment beyond it is refused with RESOURCE_EXHAUSTED and must be
/// offered again. Shutdown: RequestDrain, Step until kDrained, SnapshotState; the destructor just lets go.
class Learner {
 public:
  /// INVALID_ARGUMENT for options out of range, an ingest budget that is too small, a schema whose critic inputs do not
  /// fit, or learner epoch 0.
  static absl::StatusOr<std::unique_ptr<Learner>> Create(LearnerConfig config, const LearnerDeps& deps);
  ~Learner();
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  /// Continues a saved run: counters, lanes, watermarks, window, policies. What was queued then is booked as rolled
  /// back. FAILED_PRECONDITION after Start, or unless the config's learner epoch is above the state's; INVALID_ARGUMENT
  /// for policies or learn groups that do not fit; NOT_FOUND for a group that the trainer has not.
  absl::Status Restore(const LearnerState& state) { return cycle_.Restore(state); }
  /// Publishes the first weights, stamped (learner epoch, iteration), and begins to grant. Errors are the trainer's.
  absl::Status Start() { return cycle_.Start(); }

  /// Registers a worker; its ticket goes with everything it brings. An id that is connected is fenced off: its old
  /// ticket is void from now on. `port` gets the grants, some perhaps before Join returns. CANCELLED when the run
  /// drains or has ended, INVALID_ARGUMENT for an absurd sequence number.
  absl::StatusOr<WorkerTicket> Join(const WorkerHello& hello, std::shared_ptr<WorkerPort> port) {
    return desk_.Join(hello, std::move(port));
  }
  /// The stream ended. What the worker had not delivered is granted to others. A void ticket is ignored.
  void Leave(const WorkerTicket& ticket) { desk_.Leave(ticket); }
  /// One fragment. The caller sends the acknowledgement on (WorkerPort::SendAck is not called from here). Errors give
  /// the fragment no disposition: FAILED_PRECONDITION the ticket is void, end the stream; RESOURCE_EXHAUSTED offer it
  /// again later; INVALID_ARGUMENT a sequence number out of the window, end the stream.
  absl::StatusOr<sample::FragmentAck> Submit(const WorkerTicket& ticket, uint64_t sequence,
                                             sample::MultiAgentBatchPtr batch) {
    return desk_.Submit(ticket, sequence, std::move(batch));
  }
  /// The same for bytes that are no fragment: INVALID with `reason`. Errors as Submit's.
  absl::StatusOr<sample::FragmentAck> SubmitUndecodable(const WorkerTicket& ticket, uint64_t sequence,
                                                        const std::string& reason) {
    return desk_.SubmitUndecodable(ticket, sequence, reason);
  }
  /// A sign of life, perhaps with how the worker's environments do (counters >= 0): the first incident of each kind is
  /// logged. FAILED_PRECONDITION when the ticket is void, INVALID_ARGUMENT for counters that no worker reaches.
  absl::Status Heartbeat(const WorkerTicket& ticket, const std::optional<sample::EnvReport>& report = std::nullopt) {
    return desk_.Heartbeat(ticket, report);
  }
  /// Lets silent workers go, gives the work of grants that were out for too long to others, and begins when the join
  /// timeout is over. Call about once a second.
  void Tick() { desk_.Tick(); }

  /// Waits up to `timeout` for a complete train batch and makes one update from it.
  StepOutcome Step(absl::Duration timeout) { return cycle_.Step(timeout); }
  /// Makes `next`, which follows from Policies() by changes, the policies of the run: what it brings is made in the
  /// trainer and published first, every grant from then on carries it, and rows of a policy that it replaced are STALE.
  /// One that it removes plays on in the episodes in progress; its slot is released by a later Step, in a revision of
  /// its own, when no worker can bring rows of it any more. Between Steps. Whole or not at all: FAILED_PRECONDITION
  /// before Start or for a learner without a table, UNAVAILABLE once the run is about to end, INVALID_ARGUMENT when
  /// `next` or `change` do not follow; else the trainer's.
  absl::Status ChangePolicies(const policy::PolicyTablePtr& next, TableChange change) {
    return cycle_.ChangePolicies(next, std::move(change));
  }
  /// By slot, the policy of the run's beginning that each is trained as (LearnerState). Between Steps.
  const policy::BySlot<policy::PolicyId>& trained_as() const { return cycle_.trained_as(); }
  /// The policies as they are now.
  policy::PolicyTablePtr Policies() const { return run_.View()->table; }

  /// Everything to resume from. Between Steps, after Start. Errors are the trainer's.
  absl::StatusOr<LearnerSnapshot> SnapshotState() { return cycle_.SnapshotState(); }
  /// An evaluation: decides `best` at the next SnapshotState, of the present weights, or Judge, of earlier ones.
  void ReportEvaluation(const EpisodeStats& evaluation) { cycle_.ReportEvaluation(evaluation); }
  /// True if the evaluation that was reported makes `state`, an earlier snapshot that it played, the best so far.
  bool Judge(LearnerState* state) { return cycle_.Judge(state); }

  /// No further grants; workers are asked to hand in and leave. Idempotent.
  void RequestDrain(const std::string& reason) { desk_.RequestDrain(reason); }
  LearnerStatus Status() const { return run_.Status(); }
  /// Whether the run was asked to end, or is at its end.
  bool ends() const;
  /// What callbacks of episodes have tracked at workers since the last time. Who leaves as the run ends is still here.
  TrackedBook::News TakeTracked();

 private:
  Learner(LearnerConfig config, const LearnerDeps& deps, PolicyViewPtr view);

  // The halves refer to what stands above them.
  const LearnerConfig config_;
  const LearnerDeps deps_;
  RunState run_;
  WorkerDesk desk_;
  UpdateCycle cycle_;
};

}  // namespace troupe::learner
