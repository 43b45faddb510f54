#include "services/common/rollout_setup.h"

#include <memory>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/env/observation_function.h"
#include "lib/policy/policy_mapping.h"

namespace troupe::services {

absl::StatusOr<rollout::RolloutConfig> MakeRolloutConfig(const config::ResolvedRun& run,
                                                         const env::EnvRegistry& registry) {
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<policy::PolicyMapping> mapping,
                          policy::MakeRuleMapping(run.mapping_rules, run.agent_ids(), run.policy_ids()));
  rollout::RolloutConfig config;
  config.env_spec = run.env_spec;
  config.policies = run.policies;
  config.mapping = std::move(mapping);
  config.env_factory = [&registry, name = run.env_name, args = run.env_args,
                        function = run.observation_fn]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<env::MultiAgentEnv> env, registry.Make(name, args));
    return env::WithObservationFunction(std::move(env), function);
  };
  config.options = run.rollout;
  for (const auto& [name, value] : run.env_args.values()) {
    config.options.env_args.push_back({name, env::ArgText(value)});
  }
  return config;
}

}  // namespace troupe::services
