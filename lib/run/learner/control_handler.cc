#include "lib/run/learner/control_handler.h"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/policy/policy_entry.h"
#include "troupe_version.h"

namespace troupe::run {
namespace {

absl::Status Ending() {
  return absl::UnavailableError("the learner is ending and writes its last checkpoint by itself");
}

std::map<std::string, double, std::less<>> ExplorationOf(policy::PolicySlot slot,
                                                         const std::vector<learner::PolicyUpdateReport>& reports) {
  std::map<std::string, double, std::less<>> exploration;
  for (const learner::PolicyUpdateReport& report : reports) {
    if (report.policy != slot) continue;
    for (const auto& [tag, value] : report.metrics) {
      absl::string_view name = tag;
      if (absl::ConsumePrefix(&name, learner::kExplorationTag)) exploration[std::string(name)] = value;
    }
  }
  return exploration;
}

}  // namespace

absl::Status ControlHandler::PoliciesStay() {
  return absl::UnavailableError("the learner is ending, its policies stay as they are");
}

rpc::RunStatus ControlHandler::GetStatus(const base::Caller& /*caller*/) {
  rpc::RunStatus status = binding_->Status();
  status.build_version = TROUPE_VERSION;
  status.run_name = run_name_;
  status.degraded = degradations_->List();
  status.door = rpc::ToValues(*door_);
  const learner::ProgressRecord& progress = status.learner.progress;
  const policy::PolicyTablePtr table = learner_->Policies();
  for (const policy::PolicySlot slot : table->entries().ids()) {
    const policy::PolicyEntry* const entry = table->Find(slot);
    if (entry == nullptr || !entry->active()) continue;
    rpc::PolicyStatus& policy = status.policies.emplace_back();
    policy.id = entry->spec.id;
    policy.version = {status.learner.learner_epoch, progress.updates};  // every policy's version counts updates
    policy.trains = entry->trains;
    if (status.learner.policy_rows.Contains(slot)) policy.rows = status.learner.policy_rows[slot];
    // Since the last update the slot may have got another policy.
    const policy::PolicyEntry* const then = progress.table == nullptr ? nullptr : progress.table->Find(slot);
    if (then == nullptr || then->since != entry->since) continue;
    if (progress.policies != nullptr) policy.exploration = ExplorationOf(slot, *progress.policies);
    if (!progress.window.policies.Contains(slot)) continue;
    const learner::Spread& returns = progress.window.policies[slot];
    if (returns.empty()) continue;
    policy.return_count = returns.count;
    policy.return_mean = *returns.mean();
    policy.return_min = returns.min;
    policy.return_max = returns.max;
  }
  return status;
}

void ControlHandler::RequestCheckpoint(const base::Caller& caller, const std::string& to,
                                       std::function<void(absl::StatusOr<int64_t>)> done) {
  if (!to.empty()) TROUPE_INFO("checkpoint asked for by=\"{}\" to=\"{}\"", caller.ToString(), base::LogSafe(to));
  Ask({.done = std::move(done), .to = to});
}

void ControlHandler::RequestPrune(const base::Caller& caller, int keep,
                                  std::function<void(absl::StatusOr<int64_t>)> done) {
  TROUPE_INFO("prune asked for by=\"{}\" keep={}", caller.ToString(), keep);
  Ask({.done = std::move(done), .keep = keep});
}

void ControlHandler::Ask(CheckpointRequest request) {
  absl::Status refused = Ending();
  {
    base::MutexLock lock(&mutex_);
    if (!refuses_ && requests_.size() < kMaxCheckpointRequests) {
      requests_.push_back(std::move(request));
      return;
    }
    if (!refuses_) {
      refused = absl::ResourceExhaustedError(
          absl::StrCat(kMaxCheckpointRequests, " checkpoints wait for the next update already; try again"));
    }
  }
  request.done(refused);
}

void ControlHandler::RequestDrain(const base::Caller& caller, const std::string& reason) {
  TROUPE_INFO("drain asked for by=\"{}\" reason=\"{}\"", caller.ToString(), reason);
  drain_asked_.store(true, std::memory_order_relaxed);
  learner_->RequestDrain(reason);
}

std::vector<ControlHandler::CheckpointRequest> ControlHandler::TakeCheckpointRequests() {
  base::MutexLock lock(&mutex_);
  return std::exchange(requests_, {});
}

void ControlHandler::ChangePolicies(const base::Caller& /*caller*/, policy::PolicyChange change, ChangeDone done) {
  absl::Status refused = PoliciesStay();
  {
    base::MutexLock lock(&mutex_);
    if (!refuses_) refused = CheckRateLocked(change);
    if (refused.ok()) {
      changes_.push_back({std::move(change), std::move(done)});
      return;
    }
  }
  done(refused);
}

absl::Status ControlHandler::CheckRateLocked(const policy::PolicyChange& change) {
  if (changes_.size() >= kMaxChanges) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxChanges, " changes of the policies wait for the next update already; try again"));
  }
  if (!std::holds_alternative<policy::AddPolicy>(change)) return absl::OkStatus();
  const absl::Duration now = clock_->SteadyNow();
  while (!added_at_.empty() && added_at_.front() + absl::Hours(1) <= now) added_at_.pop_front();
  if (added_at_.size() >= kMaxAddedPerHour) {
    return absl::ResourceExhaustedError(absl::StrCat(
        added_at_.size(), " policies were added within an hour, at most ", kMaxAddedPerHour, "; try again in ",
        absl::FormatDuration(absl::Ceil(added_at_.front() + absl::Hours(1) - now, absl::Seconds(1)))));
  }
  added_at_.push_back(now);
  return absl::OkStatus();
}

std::vector<ControlHandler::ChangeRequest> ControlHandler::TakeChanges() {
  base::MutexLock lock(&mutex_);
  return std::exchange(changes_, {});
}

void ControlHandler::RefuseAll() {
  std::vector<CheckpointRequest> checkpoints;
  std::vector<ChangeRequest> changes;
  {
    base::MutexLock lock(&mutex_);
    refuses_ = true;
    checkpoints.swap(requests_);
    changes.swap(changes_);
  }
  for (const CheckpointRequest& request : checkpoints) request.done(Ending());
  for (const ChangeRequest& request : changes) request.done(PoliciesStay());
}

}  // namespace troupe::run
