#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/learner/learner.h"
#include "lib/policy/policy_change.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/door/door_counts.h"
#include "lib/rpc/learner/learner_binding.h"
#include "lib/rpc/worker/learner_endpoint.h"
#include "lib/run/learner/checkpoint_loop.h"
#include "lib/run/learner/degradations.h"

namespace troupe::run {

/// Answers Monitor and Control: status and policies at once, drains by the learner, checkpoints and changes of the
/// policies by collecting the requests until the update thread has time for them. Made by the learner's process; what
/// it borrows outlives it. Thread-safe; never blocks.
class ControlHandler final : public rpc::ControlHandler, public rpc::MonitorHandler {
 public:
  using ChangeDone = std::function<void(absl::StatusOr<int64_t>)>;
  /// Requests to the writer of checkpoints.
  struct CheckpointRequest {
    CheckpointLoop::Done done;
    std::string to = "";  ///< the path of a checkpoint outside the run; empty: one of the run
    int keep = 0;         ///< above 0: no checkpoint, but the older ones are to go
  };
  /// Of these that wait; another is refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxCheckpointRequests = 64;
  /// Changes that wait; another is refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxChanges = 64;
  /// Policies that may be added within an hour; another is refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxAddedPerHour = 1024;
  struct ChangeRequest {
    policy::PolicyChange change;
    ChangeDone done;
  };

  ControlHandler(learner::Learner* learner, const rpc::LearnerBinding* binding, const Degradations* degradations,
                 const rpc::DoorCounts* door, std::string run_name, base::Clock* clock = &base::Clock::Real())
      : learner_(learner),
        binding_(binding),
        degradations_(degradations),
        door_(door),
        run_name_(std::move(run_name)),
        clock_(clock) {}

  rpc::RunStatus GetStatus(const base::Caller& caller) override;
  void RequestCheckpoint(const base::Caller& caller, const std::string& to,
                         std::function<void(absl::StatusOr<int64_t>)> done) override;
  void RequestPrune(const base::Caller& caller, int keep, std::function<void(absl::StatusOr<int64_t>)> done) override;
  void RequestDrain(const base::Caller& caller, const std::string& reason) override;

  policy::PolicyTablePtr Policies(const base::Caller& /*caller*/) override { return learner_->Policies(); }
  void ChangePolicies(const base::Caller& caller, policy::PolicyChange change, ChangeDone done) override;

  /// True if somebody has asked for a drain.
  bool drain_asked() const { return drain_asked_.load(std::memory_order_relaxed); }
  /// Those since the last call, in order, to be served between two updates.
  std::vector<CheckpointRequest> TakeCheckpointRequests();
  /// Changes asked for since the last call, in order, to be made between two updates.
  std::vector<ChangeRequest> TakeChanges();
  /// What a change is refused with then.
  static absl::Status PoliciesStay();
  /// After the last update: whoever still asks, or asks later, is refused.
  void RefuseAll();

 private:
  void Ask(CheckpointRequest request);
  /// OK: there is room for `change`, and it counts from now on.
  absl::Status CheckRateLocked(const policy::PolicyChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  learner::Learner* const learner_;
  const rpc::LearnerBinding* const binding_;
  const Degradations* const degradations_;
  const rpc::DoorCounts* const door_;
  const std::string run_name_;
  base::Clock* const clock_;
  std::atomic<bool> drain_asked_{false};
  base::Mutex mutex_;
  std::vector<CheckpointRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<ChangeRequest> changes_ ABSL_GUARDED_BY(mutex_);
  std::deque<absl::Duration> added_at_ ABSL_GUARDED_BY(mutex_);  ///< within the last hour, the newest last
  bool refuses_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::run
