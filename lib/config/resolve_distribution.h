#pragma once

#include "absl/status/status.h"
#include "lib/config/overrides.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_fwd.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {

/// What a policy with networks draws continuous actions from, and how they are bounded, from `model`, the policy's, and
/// the run's action_bound_method and action_scaling, of which `auto` is what the distribution and the Box's bounds
/// need. A policy without continuous actions takes the bounding alone. `spec` has its spaces. INVALID_ARGUMENT at the
/// key for a distribution that contradicts the bounding, an action space without bounds where it needs them, bounds of
/// log standard deviations that are no interval or leave out the first one.
absl::Status SetDistribution(const RunConfig& config, const SettingsOf& of, const v1::ModelConfig& model,
                             policy::PolicySpec* spec);

/// True if `before` and `now` are the same bounding of a run with this model.scaling: runs of before there was `auto`
/// have its value in its place.
bool IsSameBounding(std::string_view key, std::string_view before, std::string_view now, v1::ScalingRule scaling);

}  // namespace troupe::config
