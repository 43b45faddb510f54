#pragma once

#include <vector>

#include "absl/status/status.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/resolved_run.h"

namespace troupe::config {

/// Fills run->algorithms from the schema's messages, whatever algorithms there are: every key that is set by its name,
/// but for minibatch_size and num_minibatches, of which one number is made. `run` has its policies and its learner's
/// options. INVALID_ARGUMENT with the place of the key: more rows, or more minibatches, than a batch has; a schedule
/// that begins where it must not; what the algorithm's own parser refuses.
absl::Status FillAlgorithms(const std::vector<SettingsOf>& settings, ResolvedRun* run);

}  // namespace troupe::config
