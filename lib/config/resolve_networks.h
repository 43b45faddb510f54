#pragma once

#include "absl/status/status.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/env/env_spec.h"
#include "lib/policy/policy_spec.h"

namespace troupe::config {

/// Sizes, activations and gains of the networks, as `model` says. `layer_norm`: what auto is.
void SetModel(const v1::ModelConfig& model, bool layer_norm, policy::PolicySpec* spec);

/// The inputs, normalizer and action bounding that networks need. `spec` has its spaces. Errors name the key.
absl::Status FillNetworks(const RunConfig& config, const env::EnvSpec& env, const SettingsOf& of,
                          policy::PolicySpec* spec);

/// A policy without networks gets nothing of theirs, and its actions are the environment's own. Errors name the key.
absl::Status FillWithoutNetworks(const RunConfig& config, const SettingsOf& of, policy::PolicySpec* spec);

}  // namespace troupe::config
