#pragma once

#include "absl/status/status.h"
#include "lib/config/resolve_policies.h"
#include "lib/config/run_config.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::config {

/// Gives the critic of `spec`, whose inputs and encoders are known, the actor's encoder where model.critic_encoder is
/// shared, with a head of model.critic_head_hidden_sizes. INVALID_ARGUMENT with the place of the key for a critic that
/// reads something else than the actor, for layers or a core that it is given beside the actor's, and for an actor that
/// is a TorchScript module.
absl::Status ShareEncoder(const RunConfig& config, const SettingsOf& of, policy::PolicySpec* spec);

}  // namespace troupe::config
