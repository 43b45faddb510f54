#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/learner/checked_fragment.h"
#include "lib/learner/policy_view.h"
#include "lib/learner/run_state.h"
#include "lib/learner/worker_registry.h"
#include "lib/sample/env_report.h"

namespace troupe::learner {

/// A learner's half that workers talk to: they join and leave, hand fragments in and give signs of life; what follows
/// from it, grants above all, goes out by their ports. It trains and publishes nothing: that is UpdateCycle's. Made and
/// owned by Learner; has no state but RunState's.
///
/// Thread-safety: every method may be called from any thread, and none blocks for long (Submit validates, outside the
/// lock). Ports are called without the lock. The methods are Learner's, which says what they do.
class WorkerDesk {
 public:
  /// `run` outlives it.
  explicit WorkerDesk(RunState* run) : run_(*run) {}

  absl::StatusOr<WorkerTicket> Join(const WorkerHello& hello, std::shared_ptr<WorkerPort> port);
  void Leave(const WorkerTicket& ticket);
  absl::StatusOr<sample::FragmentAck> Submit(const WorkerTicket& ticket, uint64_t sequence,
                                             sample::MultiAgentBatchPtr batch);
  absl::StatusOr<sample::FragmentAck> SubmitUndecodable(const WorkerTicket& ticket, uint64_t sequence,
                                                        const std::string& reason);
  absl::Status Heartbeat(const WorkerTicket& ticket, const std::optional<sample::EnvReport>& report);
  void Tick();
  void RequestDrain(const std::string& reason);

 private:
  /// Ends the worker's registration; its port is let go of after the lock. `worker` may be forgotten by it.
  std::shared_ptr<WorkerPort> LeaveLocked(WorkerRegistry::Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(run_.mutex);
  /// Validates, by the policies of `view`.
  CheckedFragment CheckBy(const PolicyView& view, const sample::MultiAgentBatchPtr& batch) const;
  /// Takes a report in; what there is to say of it, after the lock.
  absl::StatusOr<std::vector<std::string>> ReportLocked(WorkerRegistry::Worker& worker, const sample::EnvReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(run_.mutex);

  RunState& run_;
};

}  // namespace troupe::learner
