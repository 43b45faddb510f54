#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "lib/base/mutex.h"
#include "lib/learner/learner.h"
#include "lib/rpc/worker/learner_endpoint.h"
#include "lib/rpc/worker/run_status.h"

namespace troupe::rpc {

/// learner::Learner as the Rollout service sees it: translates calls and codes, decides nothing. Borrows the learner.
/// Thread-safe.
class LearnerBinding final : public LearnerEndpoint {
 public:
  explicit LearnerBinding(learner::Learner* learner) : learner_(learner) {}

  absl::StatusOr<JoinReply> Join(const JoinRequest& request, std::shared_ptr<learner::WorkerPort> port) override;
  void Leave(const learner::WorkerTicket& ticket, const std::string& why) override;
  absl::Status Heartbeat(const learner::WorkerTicket& ticket, const std::optional<sample::EnvReport>& report) override;
  absl::Status Submit(const learner::WorkerTicket& ticket, uint64_t sequence, sample::MultiAgentBatchPtr batch,
                      learner::WorkerPort& port) override;
  absl::Status SubmitUndecodable(const learner::WorkerTicket& ticket, uint64_t sequence, const absl::Status& why,
                                 learner::WorkerPort& port) override;

  /// The name of a connected worker that does not permit what `digest` (config::Statement::Digest) stands for; nullopt:
  /// all do. A worker of the learner's own process needs no permission.
  std::optional<std::string> WorkerWithout(uint64_t digest) const;

  /// What the learner and its workers say; run_name, build_version, degraded and policies are the caller's.
  RunStatus Status() const;

 private:
  /// What is remembered of a worker, connected or not.
  struct Known {
    uint64_t incarnation = 0;
    std::string name;
    std::vector<uint64_t> permits;  ///< ascending
  };
  /// RESOURCE_EXHAUSTED when kMaxWorkers others are there.
  absl::Status CheckRoomLocked(sample::WorkerId id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr size_t kMaxKnown = 4096;  ///< as learner::WorkerRegistry; the oldest are forgotten

  learner::Learner* const learner_;
  mutable base::Mutex mutex_;
  std::map<sample::WorkerId, Known> known_ ABSL_GUARDED_BY(mutex_);
  /// Registrations whose stream has not ended.
  std::map<sample::WorkerId, sample::WorkerEpoch> present_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
