#include "lib/rpc/worker/weight_bus.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/log.h"

namespace troupe::rpc {

WeightBus::WeightBus(policy::BySlot<policy::PolicyId> policy_ids,
                     std::function<void(const policy::PolicyTablePtr&)> on_policies)
    : on_policies_(std::move(on_policies)),
      active_ids_(std::move(policy_ids)),
      since_(active_ids_.size(), 0),
      latest_(active_ids_.size()) {}

void WeightBus::SetPolicies(policy::PolicyTablePtr policies) {
  if (on_policies_ != nullptr) on_policies_(policies);
  policy::BySlot<policy::PolicyId> ids = policies->ActiveIds();
  std::vector<std::shared_ptr<WeightListener>> listeners;
  TakePolicies(policies, std::move(ids), &listeners);
  for (const auto& listener : listeners) listener->OnPolicies(policies);
}

void WeightBus::TakePolicies(policy::PolicyTablePtr policies, policy::BySlot<policy::PolicyId> ids,
                             std::vector<std::shared_ptr<WeightListener>>* listeners) {
  std::vector<PublishedWeightsPtr> dropped;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  for (const Subscriber& subscriber : subscribers_) listeners->push_back(subscriber.listener);
  std::swap(active_ids_, ids);
  active_ids_.resize(policies->num_slots());
  const size_t slots = std::max(latest_.size(), policies->num_slots());
  since_.resize(slots, -1);
  latest_.resize(slots);
  for (const policy::PolicySlot slot : latest_.ids()) {
    const int64_t since = policies->SinceOf(slot);
    if (since == since_[slot]) continue;
    since_[slot] = since;
    if (latest_[slot] != nullptr) dropped.push_back(std::move(latest_[slot]));
    latest_[slot] = nullptr;
  }
  policies_.swap(policies);
}

void WeightBus::Publish(policy::PolicySlot slot, policy::WeightSnapshotPtr snapshot) {
  PublishedWeightsPtr published, replaced;  // destroyed outside the lock
  std::vector<std::shared_ptr<WeightListener>> listeners;
  {
    base::MutexLock lock(&mutex_);
    TROUPE_CHECK(since_[slot] >= 0);
    PublishedWeightsPtr& latest = latest_[slot];
    if (latest != nullptr && !(latest->version() < snapshot->version)) return;
    published = std::make_shared<PublishedWeights>(slot, since_[slot], std::move(snapshot));
    replaced = std::move(latest);
    latest = published;
    for (const Subscriber& subscriber : subscribers_) {
      if (subscriber.wanted[slot] != 0) listeners.push_back(subscriber.listener);
    }
  }
  for (const auto& listener : listeners) listener->OnWeights(published);
}

void WeightBus::AnnounceVersion(policy::WeightVersion version) {
  std::vector<std::shared_ptr<WeightListener>> listeners;
  {
    base::MutexLock lock(&mutex_);
    if (!(version_ < version)) return;
    version_ = version;
    for (const Subscriber& subscriber : subscribers_) listeners.push_back(subscriber.listener);
  }
  for (const auto& listener : listeners) listener->OnVersion(version);
}

void WeightBus::Join(std::shared_ptr<WeightListener> listener) {
  base::MutexLock lock(&mutex_);
  subscribers_.push_back({std::move(listener), policy::BySlot<uint8_t>(policy::PolicyTable::kMaxPolicies)});
}

WeightBus::Subscriber* WeightBus::FindLocked(const WeightListener* listener) {
  const auto it = std::find_if(subscribers_.begin(), subscribers_.end(),
                               [listener](const Subscriber& s) { return s.listener.get() == listener; });
  return it == subscribers_.end() ? nullptr : &*it;
}

WeightBus::Known WeightBus::Change(const WeightListener* listener, absl::Span<const policy::PolicySlot> add,
                                   absl::Span<const policy::PolicySlot> remove) {
  Known known;
  base::MutexLock lock(&mutex_);
  known.version = version_;
  Subscriber* const subscriber = FindLocked(listener);
  if (subscriber == nullptr) return known;
  for (const policy::PolicySlot slot : remove) subscriber->wanted[slot] = 0;
  for (const policy::PolicySlot slot : add) {
    subscriber->wanted[slot] = 1;
    if (latest_.Contains(slot) && latest_[slot] != nullptr) known.weights.push_back(latest_[slot]);
  }
  return known;
}

WeightBus::Known WeightBus::WantAll(const WeightListener* listener) {
  Known known;
  base::MutexLock lock(&mutex_);
  known.version = version_;
  known.policies = policies_;
  Subscriber* const subscriber = FindLocked(listener);
  if (subscriber == nullptr) return known;
  subscriber->wanted = policy::BySlot<uint8_t>(policy::PolicyTable::kMaxPolicies, 1);
  for (const PublishedWeightsPtr& latest : latest_) {
    if (latest != nullptr) known.weights.push_back(latest);
  }
  return known;
}

void WeightBus::Leave(const WeightListener* listener) {
  std::vector<Subscriber> removed;  // destroyed outside the lock
  base::MutexLock lock(&mutex_);
  auto kept = std::stable_partition(subscribers_.begin(), subscribers_.end(),
                                    [listener](const Subscriber& s) { return s.listener.get() != listener; });
  std::move(kept, subscribers_.end(), std::back_inserter(removed));
  subscribers_.erase(kept, subscribers_.end());
}

absl::StatusOr<std::vector<policy::PolicySlot>> WeightBus::FindSlots(const std::vector<std::string>& policy_ids) const {
  std::vector<policy::PolicySlot> slots;
  base::MutexLock lock(&mutex_);
  for (const std::string& id : policy_ids) {
    const auto it = std::find(active_ids_.begin(), active_ids_.end(), policy::PolicyId(id));
    if (id.empty() || it == active_ids_.end()) {
      return absl::NotFoundError(
          absl::StrCat("policy '", base::LogSafe(id, 64), "' is not one of this run's ", active_ids_.size()));
    }
    slots.emplace_back(static_cast<int32_t>(it - active_ids_.begin()));
  }
  return slots;
}

size_t WeightBus::num_listeners() const {
  base::MutexLock lock(&mutex_);
  return subscribers_.size();
}

}  // namespace troupe::rpc
