#include "lib/run/learner/policy_desk.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/frozen_weights.h"
#include "lib/config/permits.h"

namespace troupe::run {

PolicyDesk::PolicyDesk(Deps deps) : deps_(std::move(deps)), changer_(ChangerDeps()) {}

PolicyChanger::Deps PolicyDesk::ChangerDeps() {
  const auto sources = [this](const policy::PolicyState* imported) {
    return PolicySources{deps_.draw, deps_.run, deps_.trainer, imported};
  };
  PolicyChanger::Deps deps;
  deps.import_of = [this, sources](const policy::PolicyChange& change) {
    return ImportOf(change, *deps_.learner->Policies(), sources(nullptr));
  };
  deps.load = [](const PolicyImport& import) {
    return config::LoadPolicy(import.path, import.source, import.spec, import.part);
  };
  deps.make = [this, sources](const policy::PolicyChange& change, const policy::PolicyState* imported) {
    return Change(change, sources(imported));
  };
  deps.clock = deps_.clock;
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

absl::StatusOr<int64_t> PolicyDesk::Change(const policy::PolicyChange& change, const PolicySources& sources) {
  const policy::PolicyTablePtr now = deps_.learner->Policies();
  TROUPE_ASSIGN_OR_RETURN(ResolvedChange resolved, ResolvePolicyChange(change, *now, sources));
  TROUPE_RETURN_IF_ERROR(CheckPermitted(*resolved.table, *now));
  deps_.cache->SetPolicies(resolved.table);
  const absl::Status changed = deps_.learner->ChangePolicies(resolved.table, std::move(resolved.added));
  if (!changed.ok()) {
    deps_.cache->SetPolicies(now);
    return changed;
  }
  TROUPE_INFO("policies changed revision={} slots={}", resolved.table->revision(), resolved.table->num_slots());
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
