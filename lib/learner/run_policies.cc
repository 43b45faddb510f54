#include "lib/learner/run_policies.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/learner/learn_groups.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_spec.h"

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

RunPolicies::RunPolicies(const LearnerDeps* deps, RunState* run, Assembler* assembler, EpisodeBook* episodes)
    : config_(run->config), deps_(*deps), run_(*run), assembler_(*assembler), episodes_(*episodes) {
  const PolicyViewPtr view = run_.View();
  for (const policy::PolicySpec& spec : view->schema.policies) trained_as_.push_back(spec.id);
  FollowTrainer(*view->table);
  base::MutexLock lock(&run_.mutex);
  run_.accounting.SetGroups(GroupOfSlots(groups_, *view->table));
}

void RunPolicies::FollowTrainer(const PolicyTable& table) {
  groups_ = GroupsOf(*deps_.trainer, table);
  assembler_.SetPolicies(table);
  assembler_.SetJointSteps(WantsJointSteps(groups_));
}

absl::Status RunPolicies::Restore(const LearnerState& state) {
  const PolicyTablePtr now = table();
  for (size_t p = 0; p < state.policies.size(); ++p) {
    if (now->Find(SlotAt(p)) == nullptr) continue;
    TROUPE_RETURN_IF_ERROR(deps_.trainer->ImportState(state.policies[p], SlotAt(p)));
  }
  // After their policies: what a group keeps refers to them.
  for (const policy::GroupState& group : state.groups) {
    TROUPE_RETURN_IF_ERROR(deps_.trainer->ImportGroup(group));
  }
  if (state.trained_as.size() == trained_as_.size()) trained_as_ = policy::BySlot<policy::PolicyId>(state.trained_as);
  return absl::OkStatus();
}

absl::StatusOr<policy::WeightSnapshotPtr> RunPolicies::VersionOf(policy::PolicySlot slot, int64_t n, bool stamp) {
  const policy::WeightVersion version{config_.learner_epoch, n};
  TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr snapshot, deps_.trainer->Snapshot(slot));
  if (stamp) {
    // Fresh or restored weights know nothing of this learner epoch.
    auto stamped = std::make_shared<policy::WeightSnapshot>(*snapshot);
    stamped->version = version;
    snapshot = std::move(stamped);
  }
  if (snapshot->version != version) {
    return absl::InternalError(absl::StrCat("policy '", snapshot->id.value(), "' has version (",
                                            snapshot->version.learner_epoch, ", ", snapshot->version.n,
                                            ") after its update, expected (", version.learner_epoch, ", ", n, ")"));
  }
  return snapshot;
}

absl::Status RunPolicies::PublishVersion(int64_t n, const std::vector<PolicyUpdateReport>* reports) {
  const PolicyTablePtr now = table();
  const bool stamp = reports == nullptr;
  policy::BySlot<uint8_t> changed(now->num_slots(), stamp ? 1 : 0);
  if (!stamp) {
    // Also of removed policies: their episodes play on with what updates make of them.
    for (const PolicyUpdateReport& report : *reports) {
      // Rows of dead agents alone are no trained rows; where an algorithm takes them it has made steps.
      if (report.trained_rows > 0 || report.minibatch_steps > 0) changed[report.policy] = 1;
    }
  }
  for (const PolicySlot slot : changed.ids()) {
    const policy::PolicyEntry* const entry = now->Find(slot);
    if (changed[slot] == 0 || entry == nullptr || !entry->spec.policy_class.has_weights()) continue;
    TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr snapshot, VersionOf(slot, n, stamp));
    deps_.publisher->Publish(slot, std::move(snapshot));
  }
  deps_.publisher->AnnounceVersion(policy::WeightVersion{config_.learner_epoch, n});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<policy::WeightSnapshotPtr>> RunPolicies::AddToTrainer(const PolicyTable& next,
                                                                                 std::vector<NewPolicy> added,
                                                                                 int64_t version) {
  std::vector<policy::WeightSnapshotPtr> weights;
  std::vector<PolicySlot> made;
  const auto add = [&](NewPolicy policy) -> absl::Status {
    const policy::PolicySpec& spec = next.Find(policy.slot)->spec;
    // As every other policy's: versions count updates.
    policy.state.id = spec.id;
    policy.state.version = policy::WeightVersion{config_.learner_epoch, version};
    TROUPE_RETURN_IF_ERROR(deps_.trainer->AddPolicy(policy.slot, spec, std::move(policy.state), policy.like));
    made.push_back(policy.slot);
    weights.emplace_back();
    if (!spec.policy_class.has_weights()) return absl::OkStatus();
    TROUPE_ASSIGN_OR_RETURN(weights.back(), VersionOf(policy.slot, version, /*stamp=*/true));
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

absl::Status RunPolicies::ChangePolicies(const PolicyTablePtr& next, TableChange change) {
  TROUPE_CHECK(next != nullptr);
  if (config_.policies == nullptr) return absl::FailedPreconditionError("this learner's policies never change");
  int64_t version = 0;
  PolicyViewPtr now;
  {
    base::MutexLock lock(&run_.mutex);
    if (run_.phase == RunState::Phase::kMade) return absl::FailedPreconditionError("the learner has not started");
    if (run_.phase != RunState::Phase::kStarted) {
      return absl::UnavailableError(
          absl::StrCat("the run is about to end, its policies stay as they are: ", run_.ending.reason));
    }
    version = run_.version;
    now = run_.view;
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<PolicySlot> slots, NewSlots(*now->table, *next));
  std::vector<NewPolicy>& added = change.added;
  TROUPE_RETURN_IF_ERROR(CheckAdded(*now->table, slots, added));
  TROUPE_RETURN_IF_ERROR(policy::CheckSize(*next));
  const PolicyViewPtr view = MakePolicyView(next, now->schema);
  TROUPE_RETURN_IF_ERROR(Assembler::CheckSchema(view->schema));
  if (change.algorithm.has_value()) {
    TROUPE_CHECK(added.empty());
    TROUPE_RETURN_IF_ERROR(deps_.trainer->SetAlgorithm(change.algorithm->slot, change.algorithm->algorithm));
  }
  std::vector<PolicySlot> order;
  for (const NewPolicy& policy : added) order.push_back(policy.slot);
  trained_as_.resize(std::max(trained_as_.size(), next->num_slots()));
  for (const NewPolicy& policy : added) {
    trained_as_[policy.slot] = trained_as_[policy.like];
  }
  TROUPE_ASSIGN_OR_RETURN(std::vector<policy::WeightSnapshotPtr> weights,
                          AddToTrainer(*next, std::move(added), version));

  FollowTrainer(*next);
  // Whoever hears of the policies by a grant finds their weights there.
  deps_.publisher->SetPolicies(next);
  for (size_t i = 0; i < order.size(); ++i) {
    if (weights[i] != nullptr) deps_.publisher->Publish(order[i], std::move(weights[i]));
  }
  base::MutexLock lock(&run_.mutex);
  run_.view = view;
  // Each new policy trains as another does: there is no feed that the run did not begin with.
  for (const FeedSpec& feed : deps_.trainer->Feeds()) {
    const auto found = std::find_if(run_.feeds.begin(), run_.feeds.end(),
                                    [&feed](const FeedSpec& of_run) { return of_run.name == feed.name; });
    TROUPE_CHECK(found != run_.feeds.end());
    run_.ingest->SetGroups(static_cast<size_t>(found - run_.feeds.begin()), feed.groups);
  }
  run_.plan->SetRevision(next->revision());
  run_.accounting.SetGroups(GroupOfSlots(groups_, *next));
  return absl::OkStatus();
}

std::vector<PolicySlot> RunPolicies::DrainedLocked() const {
  std::vector<PolicySlot> drained;
  const PolicyTable& table = *run_.view->table;
  for (const PolicySlot slot : table.entries().ids()) {
    const PolicyEntry* const entry = table.Find(slot);
    if (entry == nullptr || entry->active() || run_.ingest->Holds(slot)) continue;
    const std::vector<sample::WorkerId> owners = run_.plan->OwnersOfOlderEpisodes(entry->removed);
    // What the fragments of an owner do not show, it may have said.
    bool may_come = false;
    for (const sample::WorkerId owner : owners) {
      may_come = may_come || run_.registry.workers().at(owner.value()).oldest_revision < entry->removed;
    }
    if (!may_come) drained.push_back(slot);
  }
  return drained;
}

void RunPolicies::ReleaseDrained() {
  PolicyViewPtr view;
  std::vector<PolicySlot> drained;
  {
    base::MutexLock lock(&run_.mutex);
    if (config_.policies == nullptr || run_.phase != RunState::Phase::kStarted) return;
    drained = DrainedLocked();
    if (drained.empty()) return;
    absl::StatusOr<PolicyTablePtr> released = run_.view->table->Release(drained);
    TROUPE_CHECK(released.ok());
    // From here on their rows are STALE, so that nothing names them any more when they go below.
    view = run_.view = MakePolicyView(*std::move(released), run_.view->schema);
    run_.plan->SetRevision(view->table->revision());
    for (const PolicySlot slot : drained) run_.accounting.Forget(slot);
    run_.accounting.SetGroups(GroupOfSlots(groups_, *view->table));
  }
  for (const PolicySlot slot : drained) {
    episodes_.ForgetPolicy(slot);
    trained_as_[slot] = {};
    const absl::Status removed = deps_.trainer->RemovePolicy(slot);
    if (!removed.ok()) {
      TROUPE_ERROR("a removed policy stays in memory slot={} error=\"{}\"", slot.value(),
                   base::LogSafe(std::string(removed.message())));
    }
  }
  FollowTrainer(*view->table);
  deps_.publisher->SetPolicies(view->table);
  base::MutexLock lock(&run_.mutex);
  run_.accounting.SetGroups(GroupOfSlots(groups_, *view->table));
}

absl::Status RunPolicies::Save(LearnerState* state) {
  const PolicyTablePtr now = table();
  state->policies.resize(now->num_slots());
  std::vector<PolicySlot> leaving;
  for (const PolicySlot slot : now->entries().ids()) {
    const PolicyEntry* const entry = now->Find(slot);
    if (entry == nullptr) continue;
    if (!entry->active()) {
      leaving.push_back(slot);
      continue;
    }
    TROUPE_ASSIGN_OR_RETURN(state->policies[static_cast<size_t>(slot.value())], deps_.trainer->ExportState(slot));
  }
  TROUPE_ASSIGN_OR_RETURN(state->groups, deps_.trainer->ExportGroups());
  // Of a group whose members are all leaving, the next learner has nothing that this could be of.
  const auto leaves = [&](const policy::GroupState& kept) {
    const auto group = std::find_if(groups_.begin(), groups_.end(),
                                    [&kept](const policy::LearnGroup& one) { return one.id == kept.id; });
    return group != groups_.end() && std::all_of(group->members.begin(), group->members.end(), [&](PolicySlot slot) {
             return std::count(leaving.begin(), leaving.end(), slot) > 0;
           });
  };
  state->groups.erase(std::remove_if(state->groups.begin(), state->groups.end(), leaves), state->groups.end());
  if (config_.policies == nullptr) return absl::OkStatus();
  // No episode outlives this learner, so nobody will play what was removed.
  state->table = now;
  if (!leaving.empty()) {
    TROUPE_ASSIGN_OR_RETURN(state->table, now->Release(leaving));
  }
  state->policies.resize(state->table->num_slots());
  state->trained_as = trained_as_.values();
  for (const PolicySlot slot : leaving) state->trained_as[static_cast<size_t>(slot.value())] = {};
  state->trained_as.resize(state->table->num_slots());
  return absl::OkStatus();
}

}  // namespace troupe::learner
