// The policies of a Learner that change while it runs.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/learner/learner.h"

namespace troupe::learner {

using policy::PolicyEntry;
using policy::PolicySlot;
using policy::PolicyTable;
using policy::PolicyTablePtr;

namespace {

PolicySlot SlotAt(size_t place) { return PolicySlot(static_cast<int32_t>(place)); }

/// Slots that hold another policy in `next`, ascending. INVALID_ARGUMENT when `next` does not follow from `now`.
absl::StatusOr<std::vector<PolicySlot>> NewSlots(const PolicyTable& now, const PolicyTable& next) {
  if (next.revision() <= now.revision()) {
    return absl::InvalidArgumentError(
        absl::StrCat("policies of revision ", next.revision(), ", expected one above the present ", now.revision()));
  }
  std::vector<PolicySlot> slots;
  for (size_t p = 0; p < std::max(now.num_slots(), next.num_slots()); ++p) {
    const PolicyEntry* const before = now.Find(SlotAt(p));
    const PolicyEntry* const after = next.Find(SlotAt(p));
    if (before != nullptr && (after == nullptr || after->since != before->since)) {
      return absl::InvalidArgumentError(absl::StrCat("policies of revision ", next.revision(), " take slot ", p,
                                                     " from policy \"", before->spec.id.value(),
                                                     "\", which may still be played"));
    }
    if (before == nullptr && after != nullptr) slots.push_back(SlotAt(p));
  }
  return slots;
}

absl::Status CheckAdded(const PolicyTable& now, const std::vector<PolicySlot>& slots,
                        const std::vector<NewPolicy>& added) {
  std::vector<PolicySlot> given;
  for (const NewPolicy& policy : added) {
    given.push_back(policy.slot);
    if (now.Find(policy.like) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", policy.slot.value(), " is to be like slot ", policy.like.value(), ", which is free"));
    }
  }
  std::sort(given.begin(), given.end());
  if (given == slots) return absl::OkStatus();
  const auto append = [](std::string* out, PolicySlot slot) { absl::StrAppend(out, slot.value()); };
  return absl::InvalidArgumentError(absl::StrCat("got policies for slots [", absl::StrJoin(given, ", ", append),
                                                 "], expected [", absl::StrJoin(slots, ", ", append), "]"));
}

}  // namespace

PolicyViewPtr Learner::View() const {
  base::MutexLock lock(&mutex_);
  return view_;
}

PolicyTablePtr Learner::Policies() const { return View()->table; }

absl::StatusOr<std::vector<policy::WeightSnapshotPtr>> Learner::AddToTrainer(const PolicyTable& next,
                                                                             std::vector<NewPolicy> added,
                                                                             int64_t iteration) {
  std::vector<policy::WeightSnapshotPtr> weights;
  std::vector<PolicySlot> made;
  const auto add = [&](NewPolicy policy) -> absl::Status {
    const policy::PolicySpec& spec = next.Find(policy.slot)->spec;
    // As every other policy's: versions count updates.
    policy.state.id = spec.id;
    policy.state.version = policy::WeightVersion{config_.learner_epoch, iteration};
    TROUPE_RETURN_IF_ERROR(deps_.trainer->AddPolicy(policy.slot, spec, std::move(policy.state), policy.like));
    made.push_back(policy.slot);
    weights.emplace_back();
    if (!spec.policy_class.has_weights()) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(weights.back(), VersionOf(policy.slot, iteration, /*stamp=*/true));
    return absl::OkStatus();
  };
  for (NewPolicy& policy : added) {
    const absl::Status status = add(std::move(policy));
    if (status.ok()) continue;
    for (const PolicySlot slot : made) deps_.trainer->RemovePolicy(slot).IgnoreError();  // it is not in use
    return status;
  }
  return weights;
}

absl::Status Learner::ChangePolicies(const PolicyTablePtr& next, std::vector<NewPolicy> added) {
  TROUPE_CHECK(next != nullptr);
  if (config_.policies == nullptr) return absl::FailedPreconditionError("this learner's policies never change");
  int64_t iteration = 0;
  PolicyViewPtr now;
  {
    base::MutexLock lock(&mutex_);
    if (state_ == State::kMade) return absl::FailedPreconditionError("the learner has not started");
    if (state_ != State::kStarted) {
      return absl::UnavailableError(absl::StrCat("the run is about to end, its policies stay as they are: ", reason_));
    }
    iteration = iteration_;
    now = view_;
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<PolicySlot> slots, NewSlots(*now->table, *next));
  TROUPE_RETURN_IF_ERROR(CheckAdded(*now->table, slots, added));
  TROUPE_RETURN_IF_ERROR(policy::CheckSize(*next));
  const PolicyViewPtr view = MakePolicyView(next, config_.schema);
  TROUPE_RETURN_IF_ERROR(Assembler::CheckSchema(view->schema));
  std::vector<PolicySlot> order;
  for (const NewPolicy& policy : added) order.push_back(policy.slot);
  trained_as_.resize(std::max(trained_as_.size(), next->num_slots()));
  for (const NewPolicy& policy : added) {
    trained_as_[static_cast<size_t>(policy.slot.value())] = trained_as_[static_cast<size_t>(policy.like.value())];
  }
  TROUPE_ASSIGN_OR_RETURN(std::vector<policy::WeightSnapshotPtr> weights,
                          AddToTrainer(*next, std::move(added), iteration));

  assembler_.SetPolicies(*next);
  // Whoever hears of the policies by a grant finds their weights there.
  deps_.publisher->SetPolicies(next);
  for (size_t i = 0; i < order.size(); ++i) {
    if (weights[i] != nullptr) deps_.publisher->Publish(order[i], std::move(weights[i]));
  }
  base::MutexLock lock(&mutex_);
  view_ = view;
  scheduler_->SetRevision(next->revision());
  accounting_.SetNumPolicies(static_cast<int32_t>(next->num_slots()));
  return absl::OkStatus();
}

std::vector<PolicySlot> Learner::DrainedLocked() const {
  std::vector<PolicySlot> drained;
  const PolicyTable& table = *view_->table;
  for (size_t p = 0; p < table.num_slots(); ++p) {
    const PolicyEntry* const entry = table.Find(SlotAt(p));
    if (entry == nullptr || entry->active() || ingest_->Holds(SlotAt(p))) continue;
    const std::vector<sample::WorkerId> owners = scheduler_->OwnersOfOlderEpisodes(entry->removed);
    // What the fragments of an owner do not show, it may have said.
    bool may_come = false;
    for (const sample::WorkerId owner : owners) {
      may_come = may_come || registry_.workers().at(owner.value()).oldest_revision < entry->removed;
    }
    if (!may_come) drained.push_back(SlotAt(p));
  }
  return drained;
}

void Learner::ReleaseDrained() {
  PolicyViewPtr view;
  std::vector<PolicySlot> drained;
  {
    base::MutexLock lock(&mutex_);
    if (config_.policies == nullptr || state_ != State::kStarted) return;
    drained = DrainedLocked();
    if (drained.empty()) return;
    absl::StatusOr<PolicyTablePtr> released = view_->table->Release(drained);
    TROUPE_CHECK(released.ok());
    // From here on their rows are STALE, so that nothing names them any more when they go below.
    view = view_ = MakePolicyView(*std::move(released), config_.schema);
    scheduler_->SetRevision(view->table->revision());
    for (const PolicySlot slot : drained) accounting_.Forget(slot.value());
    accounting_.SetNumPolicies(static_cast<int32_t>(view->table->num_slots()));
  }
  assembler_.SetPolicies(*view->table);
  for (const PolicySlot slot : drained) {
    window_.ForgetPolicy(slot.value());
    trained_as_[static_cast<size_t>(slot.value())] = {};
    const absl::Status removed = deps_.trainer->RemovePolicy(slot);
    if (!removed.ok()) {
      TROUPE_ERROR("a removed policy stays in memory slot={} error=\"{}\"", slot.value(),
                   base::LogSafe(std::string(removed.message())));
    }
  }
  deps_.publisher->SetPolicies(view->table);
}

absl::Status Learner::SavePolicies(LearnerState* state) {
  const PolicyTablePtr table = Policies();
  state->policies.resize(table->num_slots());
  std::vector<PolicySlot> leaving;
  for (size_t p = 0; p < table->num_slots(); ++p) {
    const PolicyEntry* const entry = table->Find(SlotAt(p));
    if (entry == nullptr) continue;
    if (!entry->active()) {
      leaving.push_back(SlotAt(p));
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(state->policies[p], deps_.trainer->ExportState(SlotAt(p)));
  }
  if (config_.policies == nullptr) return absl::OkStatus();
  // No episode outlives this learner, so nobody will play what was removed.
  state->table = table;
  if (!leaving.empty()) {
    TROUPE_ASSIGN_OR_RETURN(state->table, table->Release(leaving));
  }
  state->policies.resize(state->table->num_slots());
  state->trained_as = trained_as_;
  for (const PolicySlot slot : leaving) state->trained_as[static_cast<size_t>(slot.value())] = {};
  state->trained_as.resize(state->table->num_slots());
  return absl::OkStatus();
}

}  // namespace troupe::learner
