#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/mutex.h"
#include "lib/learner/ports.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/codec/weight_codec.h"

namespace troupe::rpc {

/// Who hears of new weights. Thread-safe; must not block.
class WeightListener {
 public:
  virtual ~WeightListener() = default;
  /// There are newer weights of a wanted slot.
  virtual void OnWeights(const PublishedWeightsPtr& weights) = 0;
  /// What was heard so far is the newest as of `version`.
  virtual void OnVersion(policy::WeightVersion version) = 0;
  /// There are other policies. Comes before weights of those that it brings.
  virtual void OnPolicies(const policy::PolicyTablePtr& policies) = 0;
};

/// The newest weights of every policy, and who wants to hear of them. They are encoded when somebody is sent them, once
/// for all; it keeps one version a policy and no queue. Made by LearnerServer. Thread-safe; never blocks.
class WeightBus final : public learner::WeightPublisher {
 public:
  /// As of the run's start. `on_policies` hears of every later table before the bus has it.
  explicit WeightBus(policy::BySlot<policy::PolicyId> policy_ids,
                     std::function<void(const policy::PolicyTablePtr&)> on_policies = nullptr);

  /// Drops the weights of policies that are gone. Who wants a slot hears of the policy that has it now.
  void SetPolicies(policy::PolicyTablePtr policies) override;
  /// Ignores a version that is not newer than the one there is. The slot is one of the policies'.
  void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) override;
  void AnnounceVersion(policy::WeightVersion version) override;

  /// What there is of some slots, the newest as of `version`.
  struct Known {
    std::vector<PublishedWeightsPtr> weights;
    policy::WeightVersion version;
    policy::PolicyTablePtr policies = nullptr;  ///< of WantAll; nullptr: nobody has said yet
  };
  /// A listener that wants nothing yet.
  void Join(std::shared_ptr<WeightListener> listener);
  /// Changes what it wants; it hears of every newer version of it from now on. Gives what there is of `add`. Slots are
  /// below PolicyTable::kMaxPolicies; a free one is remembered.
  Known Change(const WeightListener* listener, absl::Span<const policy::PolicySlot> add,
               absl::Span<const policy::PolicySlot> remove);
  /// It wants all policies, also those to come.
  Known WantAll(const WeightListener* listener);
  void Leave(const WeightListener* listener);

  /// Their slots. NOT_FOUND unless every id is an active policy.
  absl::StatusOr<std::vector<policy::PolicySlot>> FindSlots(const std::vector<std::string>& policy_ids) const;
  size_t num_listeners() const;

 private:
  struct Subscriber {
    std::shared_ptr<WeightListener> listener;
    policy::BySlot<uint8_t> wanted;
  };
  /// The part of SetPolicies under the lock; gives who is to hear of it.
  void TakePolicies(policy::PolicyTablePtr policies, policy::BySlot<policy::PolicyId> ids,
                    std::vector<std::shared_ptr<WeightListener>>* listeners);
  Subscriber* FindLocked(const WeightListener* listener) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<void(const policy::PolicyTablePtr&)> on_policies_;
  mutable base::Mutex mutex_;
  policy::PolicyTablePtr policies_ ABSL_GUARDED_BY(mutex_);              ///< nullptr: as of the run's start
  policy::BySlot<policy::PolicyId> active_ids_ ABSL_GUARDED_BY(mutex_);  ///< empty: not active
  policy::BySlot<int64_t> since_ ABSL_GUARDED_BY(mutex_);                ///< -1: free
  policy::BySlot<PublishedWeightsPtr> latest_ ABSL_GUARDED_BY(mutex_);   ///< nullptr: none yet
  policy::WeightVersion version_ ABSL_GUARDED_BY(mutex_);                ///< announced last
  std::vector<Subscriber> subscribers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
