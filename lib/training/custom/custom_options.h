#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/training/core/on_policy_options.h"
#include "lib/training/core/schedule.h"

namespace troupe::training {

/// One policy's training with a loss of a user's own. Members have the keys of the configuration's `custom`, and the
/// schema's defaults; value_loss_coeff, huber_delta and entropy_coeff are not read: such numbers are the module's.
struct CustomOptions : OnPolicyOptions {
  std::string loss;  ///< SHA-256 of the module's file, hexadecimal; of a spec "sha256:HEX". Required
  int64_t num_epochs = 10;
  int64_t minibatch_size = 1000;  ///< rows of a policy; the remainder is a smaller minibatch. Required of a spec
};

/// The options of a spec of the name "custom" at `now`, validated. INVALID_ARGUMENT, naming the option, what it is and
/// what is expected, for a value that training cannot work with; as OptionReader says.
absl::StatusOr<CustomOptions> ParseCustomOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now = {});
/// The spec that ParseCustomOptions reads as `options`.
policy::AlgorithmSpec CustomSpec(const CustomOptions& options);

}  // namespace troupe::training
