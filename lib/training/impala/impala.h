#pragma once

#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/schedule.h"
#include "lib/training/core/vtrace_options.h"

namespace troupe::training {

/// IMPALA (Espeholt et al. 2018, arXiv 1802.01561): A2C whose targets and gradients V-trace corrects for rows of older
/// policies, so that no worker waits. Each batch is used once. Its groups are of one policy each.
const Algorithm& ImpalaAlgorithm();

/// The options of a spec of the name "impala" at `now`, validated. INVALID_ARGUMENT as OptionReader and
/// CheckVtraceOptions say.
absl::StatusOr<VtraceOptions> ParseImpalaOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now = {});
/// The spec that ParseImpalaOptions reads as `options`.
policy::AlgorithmSpec ImpalaSpec(const VtraceOptions& options);

}  // namespace troupe::training
