#pragma once

#include "absl/status/status.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/env/env_spec.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::config {

/// Gives the critic of `spec`, whose inputs are known, its attention over the agents of `env` where
/// model.critic_encoder asks for it. INVALID_ARGUMENT with the place of the key for a critic that does not read all
/// agents' observations, agents that observe images, a size that is no multiple of the heads, and more agents than
/// policy::kMaxAttentionAgents.
absl::Status SetAttention(const RunConfig& config, const env::EnvSpec& env, const SettingsOf& of,
                          policy::PolicySpec* spec);

}  // namespace troupe::config
