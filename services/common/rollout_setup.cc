#include "services/common/rollout_setup.h"

#include <memory>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/config/make_env.h"
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
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<envhost::HostPool> pool, config::MakeHostPool(run.env));
  if (pool != nullptr) {
    config.env_counters = [pool] {
      const envhost::HostStats stats = pool->stats();
      sample::EnvCounters counters;
      counters.exceptions = stats.exceptions;
      counters.bad_outputs = stats.bad_outputs;
      counters.timeouts = stats.timeouts;
      counters.process_deaths = stats.deaths;
      counters.process_restarts = stats.restarts;
      return counters;
    };
  }
  config.env_factory = [&registry, env = run.env, pool = std::move(pool)] {
    return config::MakeEnv(env, registry, nullptr, pool);
  };
  config.options = run.rollout;
  for (const auto& [name, value] : run.env.args.values()) {
    config.options.env_args.push_back({name, env::ArgText(value)});
  }
  return config;
}

}  // namespace troupe::services
