#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/caller.h"
#include "lib/learner/ports.h"
#include "lib/learner/worker_registry.h"
#include "lib/policy/policy_change.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/worker/run_status.h"
#include "lib/sample/batch_fwd.h"
#include "lib/sample/env_report.h"
#include "lib/sample/grant.h"
#include "lib/sample/ids.h"

namespace troupe::rpc {

/// What the Rollout service asks of the learner behind it. Called by gRPC's threads, several at once; none may block
/// for long. Calls of one stream come one after the other.
class LearnerEndpoint {
 public:
  virtual ~LearnerEndpoint() = default;

  struct JoinRequest {
    sample::WorkerId worker_id;  ///< 0: a new worker
    uint64_t incarnation = 0;
    uint64_t next_sequence = 1;  ///< of the next fragment it will make
    uint64_t first_unacked = 1;  ///< it still holds these and will send them again
    std::string name;
    std::vector<uint64_t> permits;  ///< digests of what it runs besides what is native, ascending
    base::Caller caller;
  };
  struct JoinReply {
    learner::WorkerTicket ticket;
    uint64_t watermark = 0;  ///< every sequence up to here has its disposition
  };
  /// Registers a worker; from now on it may be sent grants through `port` (before Join returns, too), until Leave.
  /// UNAVAILABLE while draining; any other error refuses this worker for good.
  virtual absl::StatusOr<JoinReply> Join(const JoinRequest& request, std::shared_ptr<learner::WorkerPort> port) = 0;
  virtual void Leave(const learner::WorkerTicket& ticket, const std::string& why) = 0;
  /// `report`: of the worker's environments, where it says anything of them. FAILED_PRECONDITION as Submit.
  virtual absl::Status Heartbeat(const learner::WorkerTicket& ticket,
                                 const std::optional<sample::EnvReport>& report) = 0;
  /// Gives the fragment its disposition, which goes to `port` (this worker's) as an ack. Errors mean that nothing
  /// happened and the stream ends: FAILED_PRECONDITION `ticket` was superseded or given up (the worker registers
  /// again), RESOURCE_EXHAUSTED no room now (it comes back later and sends again), INVALID_ARGUMENT a sequence number
  /// that no honest worker sends.
  virtual absl::Status Submit(const learner::WorkerTicket& ticket, uint64_t sequence, sample::MultiAgentBatchPtr batch,
                              learner::WorkerPort& port) = 0;
  /// A fragment that no batch could be made of. As Submit.
  virtual absl::Status SubmitUndecodable(const learner::WorkerTicket& ticket, uint64_t sequence,
                                         const absl::Status& why, learner::WorkerPort& port) = 0;
};

/// What the Monitor service asks of the process. Thread-safe; none may block.
class MonitorHandler {
 public:
  virtual ~MonitorHandler() = default;
  /// Everything: the service withholds what is not for everybody.
  virtual RunStatus GetStatus(const base::Caller& caller) = 0;
  /// The policies as they are now.
  virtual policy::PolicyTablePtr Policies(const base::Caller& caller) = 0;
};

/// What the Control service asks of the process. Thread-safe; none may block.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  /// Calls `done` once, from any thread, with the env steps of the checkpoint once it is durable. `to`: its path, at
  /// most kMaxPathBytes and else not looked at; empty: it is one of the run.
  virtual void RequestCheckpoint(const base::Caller& caller, const std::string& to,
                                 std::function<void(absl::StatusOr<int64_t>)> done) = 0;
  /// Calls `done` once, from any thread, with how many of the run's checkpoints are gone. `keep`: 1 to
  /// kMaxKeptCheckpoints.
  virtual void RequestPrune(const base::Caller& caller, int keep,
                            std::function<void(absl::StatusOr<int64_t>)> done) = 0;
  virtual void RequestDrain(const base::Caller& caller, const std::string& reason) = 0;
  /// Calls `done` once, from any thread, with the revision of the table once the change is done.
  virtual void ChangePolicies(const base::Caller& caller, policy::PolicyChange change,
                              std::function<void(absl::StatusOr<int64_t>)> done) = 0;
};

}  // namespace troupe::rpc
