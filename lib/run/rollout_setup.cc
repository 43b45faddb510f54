#include "lib/run/rollout_setup.h"

#include <memory>
#include <optional>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/config/make_env.h"
#include "lib/env/wrappers.h"
#include "lib/outside/lane_env.h"
#include "lib/policy/policy_mapping.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/python_callable.h"
#include "lib/run/episode_callbacks.h"

namespace troupe::run {
namespace {

void AddTo(sample::EnvCounters& counters, const envhost::HostStats& stats) {
  counters.exceptions += stats.exceptions;
  counters.bad_outputs += stats.bad_outputs;
  counters.timeouts += stats.timeouts;
  counters.process_deaths += stats.deaths;
  counters.process_restarts += stats.restarts;
}

}  // namespace

absl::StatusOr<rollout::RolloutConfig> MakeRolloutConfig(const config::ResolvedRun& run,
                                                         const env::EnvRegistry& registry,
                                                         const std::vector<std::string>& callbacks,
                                                         outside::EpisodeBook* book) {
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<policy::PolicyMapping> mapping,
                          policy::MakeRuleMapping(run.mapping_rules, run.agent_ids(), run.policy_ids()));
  rollout::RolloutConfig config;
  config.env_spec = run.env_spec;
  config.policies = policy::BySlot<policy::PolicySpec>(run.policies);
  // Of whom trains nothing follows here, and an evaluation may have given a policy that does another class.
  TROUPE_ASSIGN_OR_RETURN(const policy::PolicyTablePtr table, run.FirstTable(std::vector<bool>(run.policies.size())));
  for (const auto& [id, agents] : policy::AgentSlotsByPolicy(*table)) {
    if (agents.empty()) config.unplayed.emplace(id);
  }
  config.mapping = std::move(mapping);
  config::EnvSettings env = run.env;
  env.python.callbacks = callbacks;
  const std::shared_ptr<envhost::PythonFunctions> functions = config::MakePythonFunctions(env);
  std::shared_ptr<EpisodeCallbacks> listener;
  if (!callbacks.empty()) listener = std::make_shared<EpisodeCallbacks>(env, run.env_spec, functions);
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<envhost::HostPool> pool,
                          config::MakeHostPool(env, nullptr, listener == nullptr ? nullptr : listener->tracks()));
  config.env_factory = [&registry, env, pool] { return config::MakeEnv(env, registry, nullptr, pool); };
  config.listener = std::move(listener);
  if (book != nullptr) {
    config.outside = book;
    config.env_factory = [env = run.env, book]() -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
      std::optional<env::WrapperOption> culprit;
      return env::WithWrappers(std::make_unique<outside::LaneEnv>(book), env.wrappers, &culprit);
    };
  }
  for (const policy::MappingRule& rule : run.mapping_rules) {
    // What is wrong with a function is said here, not by every episode.
    if (policy::IsPythonName(rule.function)) TROUPE_RETURN_IF_ERROR(functions->Prepare(rule.function));
  }
  config.env_counters = [pool = std::move(pool), functions, book] {
    sample::EnvCounters counters;
    if (book != nullptr) counters.lost_episodes = book->counters().lost;
    if (pool != nullptr) AddTo(counters, pool->stats());
    AddTo(counters, functions->stats());
    return counters;
  };
  config.mapping_host = functions;
  config.actor_host = functions;
  config.options = run.rollout;
  // What is built in is tested to stay inside.
  config.options.count_outside_space = book != nullptr || policy::IsPythonName(run.env.name) ||
                                       !run.env.plugin.empty() || !run.env.wrappers.observation_fn.empty();
  for (const auto& [name, value] : run.env.args.values()) {
    config.options.env_args.push_back({name, env::ArgText(value)});
  }
  return config;
}

}  // namespace troupe::run
