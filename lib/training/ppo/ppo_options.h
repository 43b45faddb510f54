#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/training/core/kl_control.h"
#include "lib/training/core/on_policy_options.h"
#include "lib/training/core/schedule.h"

namespace troupe::training {

/// One policy's PPO (Schulman et al. 2017) as IPPO (de Witt et al. 2020) and MAPPO (Yu et al. 2022) use it. Members
/// have the keys of the configuration's `algorithm`, and the schema's defaults.
struct PpoOptions : OnPolicyOptions {
  double clip_param = 0.2;
  bool use_value_clip = false;
  double value_clip_param = 0.2;  ///< in the critic's (normalized) units
  double target_kl = 0;           ///< > 0: no further epoch once the approximate KL passes it
  KlAdaptiveRate rate = {};
  KlPenalty penalty = {};
  int64_t num_epochs = 10;
  int64_t minibatch_size = 1000;  ///< rows of a policy; the remainder is a smaller minibatch. Required of a spec
};

/// INVALID_ARGUMENT, naming the option, what it is and what is expected, for a value that PPO cannot work with.
absl::Status ValidatePpoOptions(const PpoOptions& options);
/// The options of a spec of the name "ppo" at `now`, validated. INVALID_ARGUMENT as OptionReader and ValidatePpoOptions
/// say.
absl::StatusOr<PpoOptions> ParsePpoOptions(const policy::AlgorithmSpec& spec, const ScheduleTime& now = {});
/// The spec that ParsePpoOptions reads as `options`.
policy::AlgorithmSpec PpoSpec(const PpoOptions& options);

}  // namespace troupe::training
