#pragma once

#include "lib/policy/policy_fwd.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/training/core/parameters.h"

namespace troupe::training {

/// PopArt (van Hasselt et al. 2016, "Learning values across many orders of magnitude", algorithm 1): the moments of the
/// returns, in whose units the policy's critic speaks, change from `before` to `after`, one column each; its last layer
/// is rescaled so that in the units of the rewards every value stays as it is:
///   w' = w deviation / deviation',  b' = (b deviation + mean - mean') / deviation'.
/// What the optimizer has of these weights stays. The policy has a critic.
void PreserveValues(const policy::PolicySpec& spec, const policy::RunningMoments& before,
                    const policy::RunningMoments& after, FlatParameters* parameters);

}  // namespace troupe::training
