#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "lib/config/frozen_weights.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_change.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/run/learner/policy_sources.h"

namespace troupe::run {

/// What a change of the policies comes to: what Learner::ChangePolicies takes.
struct ResolvedChange {
  policy::PolicyTablePtr table;
  learner::TableChange change = {};
};

/// A policy that a change wants from a checkpoint: the arguments of config::LoadPolicy. Plain value.
struct PolicyImport {
  std::string path;
  policy::PolicyId source;
  policy::PolicySpec spec;
  config::PolicyPart part = config::PolicyPart::kWeights;
};

/// What a change comes to but for states, and what must be read for those.
struct PolicyPlan {
  policy::PolicyTablePtr table;
  std::optional<PolicyImport> import;
};

/// What is known before anything is read. Errors are those of a change that cannot be, whatever the checkpoint holds.
/// On the update thread; reads no file.
absl::StatusOr<PolicyPlan> PlanPolicyChange(const policy::PolicyChange& change, const policy::PolicyTable& now,
                                            const PolicySources& sources);

/// Works a change out; changes nothing. On the update thread: reads states of the trainer, but no file: the plan's
/// import has been read meanwhile.
///
/// A new policy has the spaces, networks, inputs and training options of `like`; without it those of `copy_of`, of the
/// policy it replaces, or the ones that all policies (with networks, if it has them, and one algorithm, if it is
/// trained) have in common. Fresh weights are
/// drawn from (the run's seed, its id, the revision): the same run with the same changes begins the same.
/// One that replaces another trains as that did, unless it is to be frozen. One that is trained as another has that
/// one's settings, too.
///
/// Errors: INVALID_ARGUMENT an id, class or mapping that cannot be, spaces that are not the agents', two sources of
/// weights, nothing in common; NOT_FOUND an unknown policy (names the nearest); ALREADY_EXISTS adding one twice;
/// FAILED_PRECONDITION removing one that is mapped, a state of another shape; RESOURCE_EXHAUSTED too many policies.
absl::StatusOr<ResolvedChange> ResolvePolicyChange(const policy::PolicyChange& change, const policy::PolicyTable& now,
                                                   const PolicySources& sources);

}  // namespace troupe::run
