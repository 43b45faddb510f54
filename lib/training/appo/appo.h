#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/training/core/algorithm.h"
#include "lib/training/core/kl_control.h"
#include "lib/training/core/schedule.h"
#include "lib/training/core/vtrace_options.h"

namespace troupe::training {

/// APPO, asynchronous PPO, as RLlib has it after IMPACT (Luo et al. 2020, arXiv 1912.00167): V-trace by a target
/// network, PPO's clipped ratio to that, and a circular buffer that uses each batch several times. Its groups are of
/// one policy each.
const Algorithm& AppoAlgorithm();

/// Members have the keys of the configuration's `appo`, and the schema's defaults. Plain value.
struct AppoOptions : VtraceOptions {
  double clip_param = 0.2;
  KlPenalty penalty = {};  ///< on the divergence from the target
  int64_t circular_buffer_num_batches = 4;
  int64_t circular_buffer_iterations_per_batch = 2;
  int64_t target_network_update_freq = 2;  ///< updates from one step of the target to the next
  double tau = 1;                          ///< share of the way that it goes
};

/// The options of a spec of the name "appo" at `now`, validated. INVALID_ARGUMENT, naming the option, for a value that
/// it cannot work with.
absl::StatusOr<AppoOptions> ParseAppoOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now = {});
/// The spec that ParseAppoOptions reads as `options`.
policy::AlgorithmSpec AppoSpec(const AppoOptions& options);

}  // namespace troupe::training
