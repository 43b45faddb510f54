#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/resolved_run.h"
#include "lib/env/env_spec.h"
#include "lib/policy/algorithm_spec.h"

namespace troupe::config {

/// Fills run->algorithms from the schema's messages, whatever algorithms there are: every key that is set by its name,
/// but for minibatch_size and num_minibatches, of which one number is made. `run` has its policies and its learner's
/// options. INVALID_ARGUMENT with the place of the key: more rows, or more minibatches, than a batch has; a schedule
/// that begins where it must not; what the algorithm's own parser refuses.
absl::Status FillAlgorithms(const std::vector<SettingsOf>& settings, ResolvedRun* run);

/// The names of the algorithms that can train an agent with nothing but defaults.
std::vector<std::string> AlgorithmsThatFit(const env::AgentSpec& agent);

/// How the policy of `slot` trains with `settings`, "algorithm.KEY=VALUE" each (policy::PolicyEntry), instead of what
/// the configuration says. INVALID_ARGUMENT, beginning with the key: one that is no option of the policy's algorithm,
/// or that more than its trainer goes by; a value out of range; what FillAlgorithms says.
absl::StatusOr<policy::AlgorithmSpec> AlgorithmWith(const ResolvedRun& run, size_t slot,
                                                    const std::vector<std::string>& settings);

}  // namespace troupe::config
