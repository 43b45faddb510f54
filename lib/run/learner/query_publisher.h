#pragma once

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/learner/ports.h"
#include "lib/policy/policy_entry.h"
#include "lib/serving/query_engine.h"

namespace troupe::run {

/// Hands a learner's policies and their new weights to the engine that answers queries, which it borrows. Thread-safe.
class QueryPublisher final : public learner::WeightPublisher {
 public:
  explicit QueryPublisher(serving::QueryEngine* engine) : engine_(engine) {}

  void SetPolicies(policy::PolicyTablePtr policies) override {
    const absl::Status taken = engine_->SetPolicies(*policies);
    if (!taken.ok()) TROUPE_WARN("queries reach older policies error=\"{}\"", std::string(taken.message()));
    base::MutexLock lock(&mutex_);
    policies_.swap(policies);  // the old one is destroyed after the lock
  }
  void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) override {
    // Whoever plays one that was removed wants its weights to the end; queries ask those that are there.
    if (IsRemoved(slot)) return;
    const absl::Status taken = engine_->SetWeights(std::move(snapshot));
    // Training goes on; queries are answered with the weights before.
    if (!taken.ok()) TROUPE_WARN("queries keep older weights error=\"{}\"", std::string(taken.message()));
  }
  /// Answers name the version that made the weights.
  void AnnounceVersion(policy::WeightVersion /*version*/) override {}

 private:
  bool IsRemoved(policy::PolicySlot slot) const {
    base::MutexLock lock(&mutex_);
    const policy::PolicyEntry* const entry = policies_ == nullptr ? nullptr : policies_->Find(slot);
    return entry != nullptr && !entry->active();
  }

  serving::QueryEngine* const engine_;
  mutable base::Mutex mutex_;
  policy::PolicyTablePtr policies_ ABSL_GUARDED_BY(mutex_);  ///< nullptr: those that the engine was made with
};

}  // namespace troupe::run
