#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/training/core/on_policy_options.h"
#include "lib/training/core/schedule.h"

namespace troupe::training {

/// One policy's A2C: advantage actor-critic (Mnih et al. 2016), synchronous. Members have the keys of the
/// configuration's `a2c`, and the schema's defaults. Its optimizer is Adam unless it is told otherwise, where the paper
/// and Stable-Baselines3 have RMSProp.
struct A2cOptions : OnPolicyOptions {
  A2cOptions() {
    learning_rate = 7e-4;
    gae_lambda = 1;
    use_advnorm = false;
    value_loss_coeff = 0.5;
  }
  int64_t minibatch_size =
      0;  ///< rows of a policy, each trained once; 0 (`auto`, absent): all of the batch in one step
};

/// INVALID_ARGUMENT, naming the option, what it is and what is expected, for a value that A2C cannot work with.
absl::Status ValidateA2cOptions(const A2cOptions& options);
/// The options of a spec of the name "a2c" at `now`, validated. INVALID_ARGUMENT as OptionReader and ValidateA2cOptions
/// say.
absl::StatusOr<A2cOptions> ParseA2cOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now = {});
/// The spec that ParseA2cOptions reads as `options`.
policy::AlgorithmSpec A2cSpec(const A2cOptions& options);

}  // namespace troupe::training
