#include "lib/run/learner/policy_desk.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/frozen_weights.h"
#include "lib/config/permits.h"
#include "lib/policy/policy_spec.h"
#include "lib/run/learner/policy_changes.h"
#include "lib/run/learner/policy_trial.h"
#include "lib/run/learner/run_start.h"

namespace troupe::run {

PolicyDesk::PolicyDesk(Deps deps) : deps_(std::move(deps)), changer_(ChangerDeps()) {}

PolicyChanger::Deps PolicyDesk::ChangerDeps() {
  const auto configured = [this](policy::PolicySlot slot) {
    return ConfiguredPlace(*deps_.run, deps_.learner->trained_as()[slot]);
  };
  const auto sources = [this, configured](const policy::PolicyState* imported) {
    return PolicySources{deps_.draw, deps_.run, deps_.trainer, configured, imported};
  };
  PolicyChanger::Deps deps;
  deps.prepare = [this, sources](const policy::PolicyChange& change) { return Prepare(change, sources(nullptr)); };
  deps.make = [this, sources](const policy::PolicyChange& change, const policy::PolicyState* imported) {
    return Change(change, sources(imported));
  };
  deps.clock = deps_.clock;
  // Python's own words come before that.
  const envhost::HostOptions& python = deps_.run->env.python;
  deps.timeout = std::max(deps.timeout, python.start_timeout + python.step_timeout);
  return deps;
}

void PolicyDesk::Step() {
  if (changer_.idle()) changer_.Add(deps_.control->TakeChanges());
  changer_.Step();
}

void PolicyDesk::RefuseAll() {
  deps_.control->RefuseAll();
  changer_.RefuseAll(ControlHandler::PoliciesStay());
}

absl::StatusOr<PolicyChanger::Preparation> PolicyDesk::Prepare(const policy::PolicyChange& change,
                                                               const PolicySources& sources) const {
  const policy::PolicyTablePtr now = deps_.learner->Policies();
  TROUPE_ASSIGN_OR_RETURN(const PolicyPlan plan, PlanPolicyChange(change, *now, sources));
  TROUPE_RETURN_IF_ERROR(CheckPermitted(*plan.table, *now));
  std::shared_ptr<PolicyTrial> trial;
  const bool only_trains = std::holds_alternative<policy::SetPoliciesTrain>(change) ||
                           std::holds_alternative<policy::SetTrainable>(change) ||
                           std::holds_alternative<policy::SetPolicy>(change);
  if (!only_trains) trial = PolicyTrial::OfChange(*deps_.run, *deps_.registry, plan.table, *now);
  PolicyChanger::Preparation preparation;
  if (!plan.import.has_value() && trial == nullptr) return preparation;
  preparation.run = [import = plan.import, trial]() -> absl::StatusOr<std::optional<policy::PolicyState>> {
    if (const absl::Status tried = trial == nullptr ? absl::OkStatus() : trial->Run(); !tried.ok()) {
      return absl::Status(tried.code(), absl::StrCat(tried.message(), "; the policies stay as they are"));
    }
    if (!import.has_value()) return std::nullopt;
    return config::LoadPolicy(import->path, import->source, import->spec, import->part);
  };
  if (trial != nullptr) preparation.stop = [trial] { trial->Stop(); };
  return preparation;
}

absl::StatusOr<int64_t> PolicyDesk::Change(const policy::PolicyChange& change, const PolicySources& sources) {
  const policy::PolicyTablePtr now = deps_.learner->Policies();
  TROUPE_ASSIGN_OR_RETURN(ResolvedChange resolved, ResolvePolicyChange(change, *now, sources));
  TROUPE_RETURN_IF_ERROR(CheckPermitted(*resolved.table, *now));
  deps_.cache->SetPolicies(resolved.table);
  const absl::Status changed = deps_.learner->ChangePolicies(resolved.table, std::move(resolved.change));
  if (!changed.ok()) {
    deps_.cache->SetPolicies(now);
    return changed;
  }
  TROUPE_INFO("policies changed revision={} slots={}", resolved.table->revision(), resolved.table->num_slots());
  if (const auto* const set = std::get_if<policy::SetPolicy>(&change)) deps_.reporter->OnSettings(*set);
  return resolved.table->revision();
}

absl::Status PolicyDesk::CheckPermitted(const policy::PolicyTable& next, const policy::PolicyTable& now) const {
  const std::set<config::Statement> before = config::StatementsOf(now);
  for (const config::Statement& asked : config::StatementsOf(next)) {
    if (before.count(asked) > 0) continue;
    if (const std::optional<std::string> worker = deps_.workers->WorkerWithout(asked.Digest())) {
      return absl::FailedPreconditionError(
          absl::StrCat("worker ", *worker, " does not permit ", base::LogSafe(asked.name),
                       ", expected workers that were started with ",
                       asked.kind == config::Statement::Kind::kModule
                           ? std::string("--allow-torchscript FILE")
                           : absl::StrCat("--allow-python ", base::LogSafe(asked.name), " (troupe train hands it on)"),
                       ", or whose --config names it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace troupe::run
