#include "lib/rpc/worker/weight_subscriber.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/rpc/transport/convert.h"
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
  for (const policy::PolicySlot slot : subscriptions_.ids()) {
    Subscription& subscription = subscriptions_[slot];
    if (policies->SameIn(*policies_, slot)) continue;
    if (subscription.snapshot != nullptr) dropped.push_back(std::move(subscription.snapshot));
    subscription.snapshot = nullptr;
    subscription.number = 0;
    if (subscription.wanted) NoteChange(slot);
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

void WeightSubscriber::NoteChange(policy::PolicySlot slot) {
  Subscription& subscription = subscriptions_[slot];
  if (subscription.changed) return;
  subscription.changed = true;
  changed_slots_.push_back(slot);
}

bool WeightSubscriber::Subscribe(policy::PolicySlot policy) {
  Subscription& subscription = subscriptions_[policy];
  if (subscription.wanted) return false;
  subscription.wanted = true;
  subscription.number = 0;
  NoteChange(policy);
  return true;
}

std::optional<policy::WeightSnapshotPtr> WeightSubscriber::Unsubscribe(policy::PolicySlot policy) {
  Subscription& subscription = subscriptions_[policy];
  if (!subscription.wanted) return std::nullopt;
  subscription.wanted = false;
  NoteChange(policy);
  return std::exchange(subscription.snapshot, nullptr);
}

absl::StatusOr<std::optional<rollout::CurrentWeights>> WeightSubscriber::Find(policy::PolicySlot policy,
                                                                              policy::WeightVersion min_version) const {
  const Subscription& subscription = subscriptions_[policy];
  if (granted_policies_ != nullptr && policies_ != granted_policies_ &&
      !policies_->SameIn(*granted_policies_, policy)) {
    return absl::AbortedError(absl::StrCat("the policy that slot ", policy.value(),
                                           " had by the grant's policies is gone: the grant is over"));
  }
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
  for (const policy::PolicySlot slot : subscriptions_.ids()) {
    subscriptions_[slot].told = false;
    subscriptions_[slot].number = 0;
    if (subscriptions_[slot].wanted) NoteChange(slot);
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
  for (const policy::PolicySlot slot : changed_slots_) {
    Subscription& subscription = subscriptions_[slot];
    subscription.changed = false;
    if (subscription.wanted && subscription.number == 0) {
      request.add_add(slot.value());
      subscription.number = requests_;
      subscription.told = true;
    } else if (!subscription.wanted && subscription.told) {
      request.add_remove(slot.value());
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
  Subscription& subscription = subscriptions_[update.slot];
  // A table may have come meanwhile.
  const bool expected = &policies == policies_.get() || policies.SameIn(*policies_, update.slot);
  const bool newer = subscription.snapshot == nullptr || subscription.snapshot->version < update.snapshot->version;
  if (!expected || !subscription.wanted || !newer) return {};
  return {.news = true, .replaced = std::exchange(subscription.snapshot, update.snapshot)};
}

}  // namespace troupe::rpc
