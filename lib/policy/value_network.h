#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_state.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::policy {

/// The critic as a network that can be asked like an actor: a spec whose actor it is, with one continuous output, the
/// value of a row. nullopt: the policy has no critic, or one that needs more than its agent's observation (a joint
/// observation, a state), remembers, is a user's module, or shares the actor's encoder.
std::optional<PolicySpec> ValueNetworkOf(const PolicySpec& spec);

/// The weights of `network`, which is ValueNetworkOf(spec), of the state's version. Its values are in the units of the
/// rewards that the critic learned from: the last layer undoes the normalization of value targets. INVALID_ARGUMENT
/// when the state does not fit `spec`.
absl::StatusOr<WeightSnapshotPtr> ValueSnapshotOf(const PolicyState& state, const PolicySpec& spec,
                                                  const PolicySpec& network);

}  // namespace troupe::policy
