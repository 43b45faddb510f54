#pragma once

#include "absl/status/status.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/script/script_network.h"

namespace troupe::training {

/// Runs the module, which has the file's tensors, on a few rows that the policy's spaces allow. INVALID_ARGUMENT, to
/// stand behind the file's name, where it fails, gives outputs or a state of other sizes, numbers that are not finite,
/// others at a second try, others for a row by itself than among others, or none that depend on its parameters, where
/// it changes a tensor of its own or an input, and where it remembers what its parameters made, without gradients. What
/// remembers is tried on two decisions of an agent, the second one beside a first.
absl::Status TryScript(const policy::PolicySpec& spec, const policy::NetworkSpec& network, const ScriptNetwork& script);

}  // namespace troupe::training
