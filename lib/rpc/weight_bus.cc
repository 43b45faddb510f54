#include "lib/rpc/weight_bus.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/log.h"

namespace troupe::rpc {

WeightBus::WeightBus(std::vector<policy::PolicyId> policy_ids) : policy_ids_(std::move(policy_ids)) {
  latest_.resize(policy_ids_.size());
}

void WeightBus::Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) {
  TROUPE_CHECK(slot.value() >= 0 && static_cast<size_t>(slot.value()) < policy_ids_.size());
  EncodedWeightsPtr encoded = EncodeWeights(slot, snapshot);
  EncodedWeightsPtr replaced;  // destroyed outside the lock
  std::vector<std::shared_ptr<WeightListener>> listeners;
  {
    base::MutexLock lock(&mutex_);
    EncodedWeightsPtr& latest = latest_[static_cast<size_t>(slot.value())];
    if (latest != nullptr && !(latest->version < encoded->version)) return;
    replaced = std::move(latest);
    latest = encoded;
    for (const Subscriber& subscriber : subscribers_) {
      if (std::find(subscriber.slots.begin(), subscriber.slots.end(), slot) != subscriber.slots.end()) {
        listeners.push_back(subscriber.listener);
      }
    }
  }
  for (const auto& listener : listeners) listener->OnWeights(slot, encoded);
}

void WeightBus::Subscribe(std::shared_ptr<WeightListener> listener, const std::vector<policy::PolicySlot>& slots) {
  std::vector<std::pair<policy::PolicySlot, EncodedWeightsPtr>> known;
  {
    base::MutexLock lock(&mutex_);
    subscribers_.push_back({listener, slots});
    for (const policy::PolicySlot slot : slots) {
      const EncodedWeightsPtr& latest = latest_[static_cast<size_t>(slot.value())];
      if (latest != nullptr) known.emplace_back(slot, latest);
    }
  }
  for (const auto& [slot, weights] : known) listener->OnWeights(slot, weights);
}

void WeightBus::Unsubscribe(const WeightListener* listener) {
  std::vector<Subscriber> removed;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  auto kept = std::stable_partition(subscribers_.begin(), subscribers_.end(),
                                    [listener](const Subscriber& s) { return s.listener.get() != listener; });
  std::move(kept, subscribers_.end(), std::back_inserter(removed));
  subscribers_.erase(kept, subscribers_.end());
}

absl::StatusOr<std::vector<policy::PolicySlot>> WeightBus::FindSlots(const std::vector<std::string>& policy_ids) const {
  std::vector<policy::PolicySlot> slots;
  if (policy_ids.empty()) {
    for (size_t i = 0; i < policy_ids_.size(); ++i) slots.emplace_back(static_cast<int32_t>(i));
    return slots;
  }
  for (const std::string& id : policy_ids) {
    const auto it = std::find(policy_ids_.begin(), policy_ids_.end(), policy::PolicyId(id));
    if (it == policy_ids_.end()) {
      return absl::NotFoundError(
          absl::StrCat("policy '", base::LogSafe(id, 64), "' is not one of this run's ", policy_ids_.size()));
    }
    const policy::PolicySlot slot(static_cast<int32_t>(it - policy_ids_.begin()));
    if (std::find(slots.begin(), slots.end(), slot) == slots.end()) slots.push_back(slot);
  }
  return slots;
}

policy::WeightVersion WeightBus::version(policy::PolicySlot slot) const {
  base::MutexLock lock(&mutex_);
  const EncodedWeightsPtr& latest = latest_[static_cast<size_t>(slot.value())];
  return latest == nullptr ? policy::WeightVersion{} : latest->version;
}

size_t WeightBus::num_subscribers() const {
  base::MutexLock lock(&mutex_);
  return subscribers_.size();
}

}  // namespace troupe::rpc
