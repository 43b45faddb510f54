#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/learner/ports.h"
#include "lib/rpc/weight_codec.h"

namespace troupe::rpc {

/// Who hears of new weights. Thread-safe; must not block.
class WeightListener {
 public:
  virtual ~WeightListener() = default;
  /// There are weights of `slot`, newer than before.
  virtual void OnWeights(policy::PolicySlot slot, const EncodedWeightsPtr& weights) = 0;
};

/// The newest weights of every policy in their wire form, and who wants to hear of them. Encodes once for all
/// subscribers; keeps one version a policy and no queue. Made by LearnerServer. Thread-safe; never blocks.
class WeightBus final : public learner::WeightPublisher {
 public:
  /// By policy slot.
  explicit WeightBus(std::vector<policy::PolicyId> policy_ids);

  /// Ignores a version that is not newer than the one there is.
  void Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) override;

  /// Tells `listener` of what there is of `slots`, then of every newer version. It hears a version once and never an
  /// older one.
  void Subscribe(std::shared_ptr<WeightListener> listener, const std::vector<policy::PolicySlot>& slots);
  void Unsubscribe(const WeightListener* listener);

  /// NOT_FOUND unless every id is a policy of the run; all slots for an empty list.
  absl::StatusOr<std::vector<policy::PolicySlot>> FindSlots(const std::vector<std::string>& policy_ids) const;
  /// The version published last; {0, 0} before the first.
  policy::WeightVersion version(policy::PolicySlot slot) const;
  size_t num_subscribers() const;

 private:
  struct Subscriber {
    std::shared_ptr<WeightListener> listener;
    std::vector<policy::PolicySlot> slots;
  };

  const std::vector<policy::PolicyId> policy_ids_;
  mutable base::Mutex mutex_;
  std::vector<EncodedWeightsPtr> latest_ ABSL_GUARDED_BY(mutex_);  ///< by policy slot; nullptr: none yet
  std::vector<Subscriber> subscribers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::rpc
