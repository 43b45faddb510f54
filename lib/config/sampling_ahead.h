#pragma once

#include <string>
#include <vector>

#include "lib/config/resolved_run.h"

namespace troupe::config {

/// The sampling plan in words, and the policy that decided it: "free-running, at most 2 batches ahead (policy
/// \"default_policy\", impala: max_policy_lag 16)". For the log of a run that begins.
std::string SamplingText(const ResolvedRun& run);

/// Sentences for the log where algorithm.max_policy_lag does not fit an algorithm, each with the remedy: rows that are
/// more than an update old with one that takes them as its own, and workers that wait although nothing needs it.
std::vector<std::string> LagWarnings(const ResolvedRun& run);

}  // namespace troupe::config
