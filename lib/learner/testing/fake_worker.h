#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/learner/ports.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/sample/testing/fake_rollout.h"

namespace troupe::learner {

/// Keeps the newest weights, and how often they came. Thread-safe.
class FakePublisher final : public WeightPublisher {
 public:
  void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) override {
    base::MutexLock lock(&mutex_);
    const auto place = static_cast<size_t>(slot.value());
    if (snapshots_.size() <= place) snapshots_.resize(place + 1);
    snapshots_[place].swap(snapshot);
    ++publications_;
  }
  void AnnounceVersion(policy::WeightVersion version) override {
    base::MutexLock lock(&mutex_);
    announced_ = version;
  }
  /// nullptr before the first.
  policy::WeightSnapshotPtr Newest(int32_t slot) const {
    base::MutexLock lock(&mutex_);
    return static_cast<size_t>(slot) < snapshots_.size() ? snapshots_[slot] : nullptr;
  }
  /// As of which the weights are the newest; {0, 0} before the first.
  policy::WeightVersion version() const {
    base::MutexLock lock(&mutex_);
    return announced_;
  }
  int64_t publications() const {
    base::MutexLock lock(&mutex_);
    return publications_;
  }

 private:
  mutable base::Mutex mutex_;
  std::vector<policy::WeightSnapshotPtr> snapshots_ ABSL_GUARDED_BY(mutex_);
  policy::WeightVersion announced_ ABSL_GUARDED_BY(mutex_);
  int64_t publications_ ABSL_GUARDED_BY(mutex_) = 0;
};

/// The learner's side of a worker, for tests: keeps grants until they are taken. Thread-safe.
class FakeWorkerPort final : public WorkerPort {
 public:
  void SendGrant(const sample::Grant& grant) override {
    base::MutexLock lock(&mutex_);
    grants_.push_back(grant);
    changed_.NotifyAll();
  }
  void SendGrantOver(sample::GrantId grant) override {
    base::MutexLock lock(&mutex_);
    over_.push_back(grant);
  }
  void SendAck(const sample::FragmentAck& /*ack*/) override {}
  void SendDrain(const std::string& reason) override {
    base::MutexLock lock(&mutex_);
    drain_ = reason;
    changed_.NotifyAll();
  }

  std::optional<sample::Grant> TryTakeGrant() {
    base::MutexLock lock(&mutex_);
    return TakeLocked();
  }
  /// nullopt after `timeout`, or when a drain was asked for and no grant is left.
  std::optional<sample::Grant> AwaitGrant(absl::Duration timeout) {
    base::MutexLock lock(&mutex_);
    while (grants_.empty() && !drain_.has_value()) {
      if (!changed_.WaitFor(&mutex_, timeout)) break;
    }
    return TakeLocked();
  }
  /// The grants that are over since the last call.
  std::vector<sample::GrantId> TakeOver() {
    base::MutexLock lock(&mutex_);
    return std::exchange(over_, {});
  }
  std::optional<std::string> drain() const {
    base::MutexLock lock(&mutex_);
    return drain_;
  }

 private:
  std::optional<sample::Grant> TakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (grants_.empty()) return std::nullopt;
    sample::Grant grant = std::move(grants_.front());
    grants_.pop_front();
    return grant;
  }

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<sample::Grant> grants_ ABSL_GUARDED_BY(mutex_);
  std::vector<sample::GrantId> over_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::string> drain_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::learner
