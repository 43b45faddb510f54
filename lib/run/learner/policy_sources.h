#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "lib/config/resolved_run.h"
#include "lib/learner/trainer.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_state.h"

namespace troupe::run {

/// Draws the state that a policy begins with from `seed`; without an algorithm's name what is its own is left to the
/// trainer. A port of the trainer's: training::InitialState.
using DrawState = std::function<absl::StatusOr<policy::PolicyState>(
    const policy::PolicySpec& spec, const policy::AlgorithmSpec& algorithm, uint64_t seed)>;

/// The sources of new policies' states; borrowed.
struct PolicySources {
  DrawState draw;
  const config::ResolvedRun* run = nullptr;  ///< the run as it began
  learner::Trainer* trainer = nullptr;       ///< has the policies of the table
  /// The place in `run->policies` of the policy that one is trained as (ConfiguredPlace).
  std::function<size_t(policy::PolicySlot)> configured;
  const policy::PolicyState* imported = nullptr;  ///< of the PolicyImport of the change
};

}  // namespace troupe::run
