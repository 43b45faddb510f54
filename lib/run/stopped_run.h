#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "lib/policy/policy_change.h"

namespace troupe::run {

/// The policies of a stopped run after a change. Plain value.
struct StoppedChange {
  int64_t revision = 0;
  std::string checkpoint;  ///< its folder
};

/// Takes a policy out of a run that nobody trains, or maps its agents anew: in the newest checkpoint, atomically, under
/// the run's lock. So a run that cannot go on with what it plays (code in Python that is broken or gone) can be mended.
/// Runs nothing of the run's code. NOT_FOUND: no checkpoint, or no such policy; FAILED_PRECONDITION: a learner holds
/// the run, agents are mapped to the policy, or the change is another one, which needs a learner; INVALID_ARGUMENT: the
/// mapping, or a policy in it that has other spaces than those that its agents played until now.
absl::StatusOr<StoppedChange> ChangeStoppedRun(const std::string& folder, const policy::PolicyChange& change);

}  // namespace troupe::run
