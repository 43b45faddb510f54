#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lib/training/core/advantages.h"
#include "lib/training/core/on_policy_options.h"

namespace troupe::training {

/// Options that algorithms with V-trace have in common, by the same keys. Plain value.
struct VtraceOptions : OnPolicyOptions {
  VtraceOptions() {
    learning_rate = 5e-4;
    gae_lambda = 1;
    use_advnorm = false;
    value_loss_coeff = 0.5;
  }
  VtraceClips clips;           ///< `vtrace_clip_rho_threshold`, `vtrace_clip_pg_rho_threshold`
  int64_t minibatch_size = 0;  ///< rows of a policy; 0 (`auto`, absent): all of the batch in one step
};

/// Reads these keys; gae_lambda is `vtrace_lambda`.
void ReadVtraceOptions(OptionReader* reader, VtraceOptions* options);
/// INVALID_ARGUMENT as CheckOnPolicyOptions.
absl::Status CheckVtraceOptions(const VtraceOptions& options);
/// The spec's options of these, for who has them as numbers (tests).
void WriteVtraceOptions(const VtraceOptions& options, policy::AlgorithmSpec* spec);

}  // namespace troupe::training
