#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/learner/learner.h"
#include "lib/policy/policy_table.h"
#include "lib/run/learner/run_setup.h"

namespace troupe::run {

/// The policies that the run begins with, or goes on with. Errors as PolicyTable::Make and policy::CheckSize.
absl::StatusOr<policy::PolicyTablePtr> FirstPolicies(const RunSetup& setup);

/// By policy slot, the place in `setup.run.policies` of the policy that it is trained as: itself, and for one that came
/// while the run trained the one that it came like. The first, where that is not known.
std::vector<size_t> TrainedAs(const RunSetup& setup, const policy::PolicyTable& policies);

/// What its learner is made for.
learner::LearnerConfig LearnerConfigOf(const RunSetup& setup, const policy::PolicyTablePtr& policies);

}  // namespace troupe::run
