#pragma once

#include "absl/status/status.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::config {

/// Gives the networks of `spec` that read their agent's Dict or Tuple observation encoders of its leaves:
/// model.leaf_encoders, and of leaves that it does not name model.encoder and model.conv_filters. Leaves without one
/// are read as they are; where none has one the networks stay mlps. INVALID_ARGUMENT with the place of the key for
/// encoders where the observation has no leaves, a glob that matches none, convolutions of what is no image or that are
/// larger than it, an image for which there are none, and more than policy::kMaxLeafEncoders encoders.
absl::Status SetLeafEncoders(const RunConfig& config, const SettingsOf& of, policy::PolicySpec* spec);

}  // namespace troupe::config
