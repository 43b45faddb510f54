#include "lib/rpc/weight_subscriber.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/rpc/convert.h"
#include "proto/troupe/v1/weights.pb.h"

namespace troupe::rpc {

void WeightSubscriber::SetFirstPolicies(SlotPoliciesPtr policies) {
  TROUPE_CHECK(first_policies_ == nullptr);
  first_policies_ = std::move(policies);
  // A table may have come while the configuration was made sense of.
  policies_ = table_ == nullptr ? first_policies_ : std::make_shared<const SlotPolicies>(*table_);
}

absl::Status WeightSubscriber::CheckTable(const policy::PolicyTable& table, uint64_t learner_epoch) const {
  if (table_ == nullptr || table.revision() >= table_->revision()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("policy table: revision ", table.revision(), " after ",
                                                 table_->revision(), " in learner epoch ", learner_epoch));
}

WeightSubscriber::Dropped WeightSubscriber::OnTable(const policy::PolicyTablePtr& table,
                                                    const SlotPoliciesPtr& policies) {
  // After another stream to the same learner: the same table again.
  if (table_ != nullptr && table->revision() == table_->revision()) return {};
  table_ = table;
  return Expect(policies);
}

WeightSubscriber::Dropped WeightSubscriber::OnNewLearnerEpoch() {
  table_ = nullptr;
  return Expect(first_policies_);
}

WeightSubscriber::Dropped WeightSubscriber::Expect(const SlotPoliciesPtr& policies) {
  Dropped dropped;
  if (policies_ == nullptr || policies == policies_) return dropped;
  for (size_t place = 0; place < subscriptions_.size(); ++place) {
    Subscription& subscription = subscriptions_[place];
    if (policies->SameIn(*policies_, place)) continue;
    if (subscription.snapshot != nullptr) dropped.push_back(std::move(subscription.snapshot));
    subscription.snapshot = nullptr;
    subscription.number = 0;
    if (subscription.wanted) NoteChange(place);
  }
  policies_ = policies;
  return dropped;
}

void WeightSubscriber::OnGrantTaken(const policy::PolicyTablePtr& table) {
  if (table == table_) {
    granted_policies_ = policies_;
  } else {
    granted_policies_ = table == nullptr ? first_policies_ : std::make_shared<const SlotPolicies>(*table);
  }
}

size_t WeightSubscriber::PlaceOf(policy::PolicySlot policy) const {
  TROUPE_CHECK(policy.value() >= 0 && static_cast<size_t>(policy.value()) < subscriptions_.size());
  return static_cast<size_t>(policy.value());
}

void WeightSubscriber::NoteChange(size_t place) {
  Subscription& subscription = subscriptions_[place];
  if (subscription.changed) return;
  subscription.changed = true;
  changed_slots_.push_back(static_cast<int32_t>(place));
}

bool WeightSubscriber::Subscribe(policy::PolicySlot policy) {
  const size_t place = PlaceOf(policy);
  Subscription& subscription = subscriptions_[place];
  if (subscription.wanted) return false;
  subscription.wanted = true;
  subscription.number = 0;
  NoteChange(place);
  return true;
}

std::optional<policy::WeightSnapshotPtr> WeightSubscriber::Unsubscribe(policy::PolicySlot policy) {
  const size_t place = PlaceOf(policy);
  Subscription& subscription = subscriptions_[place];
  if (!subscription.wanted) return std::nullopt;
  subscription.wanted = false;
  NoteChange(place);
  return std::exchange(subscription.snapshot, nullptr);
}

absl::StatusOr<std::optional<rollout::CurrentWeights>> WeightSubscriber::Find(policy::PolicySlot policy,
                                                                              policy::WeightVersion min_version) const {
  const size_t place = PlaceOf(policy);
  if (granted_policies_ != nullptr && policies_ != granted_policies_ && !policies_->SameIn(*granted_policies_, place)) {
    return absl::AbortedError(absl::StrCat("the policy that slot ", policy.value(),
                                           " had by the grant's policies is gone: the grant is over"));
  }
  const Subscription& subscription = subscriptions_[place];
  if (subscription.snapshot == nullptr) return std::optional<rollout::CurrentWeights>();
  rollout::CurrentWeights current{subscription.snapshot, subscription.snapshot->version};
  // An announcement follows the weights it speaks of, so they are here.
  const bool covered = subscription.number > 0 && subscription.number <= announced_number_;
  if (covered && current.version < announced_) current.version = announced_;
  if (current.version < min_version) return std::optional<rollout::CurrentWeights>();
  return std::optional<rollout::CurrentWeights>(std::move(current));
}

void WeightSubscriber::BeginStream() {
  assembler_ = std::make_shared<WeightAssembler>(policies_);
  requests_ = 0;
  announced_number_ = 0;
  for (size_t place = 0; place < subscriptions_.size(); ++place) {
    subscriptions_[place].told = false;
    subscriptions_[place].number = 0;
    if (subscriptions_[place].wanted) NoteChange(place);
  }
}

std::optional<LinkOwner::Outgoing> WeightSubscriber::NextRequest(sample::WorkerId worker_id, uint64_t spec_hash) {
  if (requests_ > 0 && changed_slots_.empty()) return std::nullopt;
  v1::SubscribeRequest request;
  if (requests_ == 0) {
    *request.mutable_protocol() = OurProtocol();
    request.set_worker_id(worker_id.value());
    request.set_spec_hash(spec_hash);
  }
  request.set_number(++requests_);
  for (const int32_t slot : changed_slots_) {
    Subscription& subscription = subscriptions_[static_cast<size_t>(slot)];
    subscription.changed = false;
    if (subscription.wanted && subscription.number == 0) {
      request.add_add(slot);
      subscription.number = requests_;
      subscription.told = true;
    } else if (!subscription.wanted && subscription.told) {
      request.add_remove(slot);
      subscription.told = false;
    }
  }
  changed_slots_.clear();
  return LinkOwner::Outgoing{Serialize(request)};
}

WeightSubscriber::Received WeightSubscriber::OnUpdate(const WeightAssembler::Update& update,
                                                      const SlotPolicies& policies) {
  if (update.snapshot == nullptr) {
    announced_ = update.version;
    announced_number_ = update.number;
    return {.news = true};
  }
  const auto place = static_cast<size_t>(update.slot.value());
  Subscription& subscription = subscriptions_[place];
  // A table may have come meanwhile.
  const bool expected = &policies == policies_.get() || policies.SameIn(*policies_, place);
  const bool newer = subscription.snapshot == nullptr || subscription.snapshot->version < update.snapshot->version;
  if (!expected || !subscription.wanted || !newer) return {};
  return {.news = true, .replaced = std::exchange(subscription.snapshot, update.snapshot)};
}

}  // namespace troupe::rpc
