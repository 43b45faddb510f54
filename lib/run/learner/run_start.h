#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/learner/learner.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/run/learner/run_setup.h"

namespace troupe::run {

/// The policies that the run begins with, or goes on with. Errors as PolicyTable::Make and policy::CheckSize.
absl::StatusOr<policy::PolicyTablePtr> FirstPolicies(const RunSetup& setup);

/// The place in `run.policies` of the one of this id; the first, where there is none.
size_t ConfiguredPlace(const config::ResolvedRun& run, const policy::PolicyId& id);

/// By policy slot, the place in `setup.run.policies` of the policy that it is trained as: itself, and for one that came
/// while the run trained the one that it came like. The first, where that is not known.
std::vector<size_t> TrainedAs(const RunSetup& setup, const policy::PolicyTable& policies);

/// By policy slot, how each trains: as the configuration says, but for the settings that it got while the run trained.
/// Errors as config::AlgorithmWith.
absl::StatusOr<std::vector<policy::AlgorithmSpec>> FirstAlgorithms(const RunSetup& setup,
                                                                   const policy::PolicyTable& policies);

/// What its learner is made for.
learner::LearnerConfig LearnerConfigOf(const RunSetup& setup, const policy::PolicyTablePtr& policies);

}  // namespace troupe::run
