#include "lib/cli/env_checks.h"

#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/status_macros.h"
#include "lib/cli/output.h"
#include "lib/envs/register_all.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/scaling_text.h"
#include <CLI/CLI.hpp>

namespace troupe::cli {

void AddEnvFlags(CLI::App* command, NamedEnv* named) {
  command->add_option("name", named->name, "environment, as `env.name` of a configuration says it")->required();
  command->add_option("--plugin", named->plugin, "shared library that has it (env.plugin)");
  command->add_option("--python", named->python,
                      "the Python that runs it: a program, or a virtual environment's folder (env.python.interpreter)");
  command->add_option("--arg", named->args, "an argument of the environment: N=3 (repeat)")->allow_extra_args(false);
  command->add_option("--set", named->overrides, "any other key of a configuration: env.x=y (repeat)")
      ->allow_extra_args(false);
}

env::EnvRegistry AllEnvs() {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  return registry;
}

absl::StatusOr<config::RunConfig> ConfigOf(const NamedEnv& named) {
  std::vector<std::string> overrides = {config::TextOverride("env.name", named.name)};
  if (!named.plugin.empty()) overrides.push_back(config::TextOverride("env.plugin", named.plugin));
  if (!named.python.empty()) overrides.push_back(config::TextOverride("env.python.interpreter", named.python));
  for (const std::string& arg : named.args) overrides.push_back(absl::StrCat("env.args.", arg));
  overrides.insert(overrides.end(), named.overrides.begin(), named.overrides.end());
  TROUPE_ASSIGN_OR_RETURN(config::RunConfig config, config::RunConfig::FromYaml("{env: {}}", "arguments", overrides));
  for (const std::string& text : named.overrides) {
    if (absl::StartsWith(text, "env.") || absl::StartsWith(text, "multi_agent.observation_fn=")) continue;
    return base::WithExitCode(
        absl::InvalidArgumentError(absl::StrCat("--set ", text,
                                                ": got a key that makes no environment, expected one of env (env.x=y) "
                                                "or multi_agent.observation_fn; take it out")),
        base::ExitCode::kUsage);
  }
  return config;
}

void SayAsItGoes(const std::string& recognized_as, env::ConformanceOptions* options) {
  if (!recognized_as.empty()) {
    std::printf("recognized as %s\n", recognized_as.c_str());
    std::fflush(stdout);
  }
  const int64_t all = int64_t{options->num_envs} * options->episodes;
  options->on_broken = [](const env::ConformanceLine& line) {
    std::printf("broken: %s: %s\n", std::string(env::EnvRuleName(line.rule)).c_str(), line.detail.c_str());
    std::fflush(stdout);
  };
  options->on_episode = [all, said = base::Clock::Real().SteadyNow()](const env::ConformanceReport& played) mutable {
    const absl::Duration now = base::Clock::Real().SteadyNow();
    if (now - said < absl::Seconds(1)) return;
    said = now;
    std::printf("%lld of %lld episodes, %s env steps\n", static_cast<long long>(played.episodes()),
                static_cast<long long>(all), WithThousands(played.env_steps).c_str());
    std::fflush(stdout);
  };
}

absl::StatusOr<std::string> RecognizedAs(const config::EnvSettings& settings, const env::EnvRegistry& registry,
                                         const std::shared_ptr<envhost::HostPool>& pool) {
  if (pool == nullptr) return "";
  TROUPE_RETURN_IF_ERROR(config::MakeEnv(settings, registry, nullptr, pool).status());
  return pool->recognized_as();
}

absl::StatusOr<env::ConformanceReport> CheckEnv(const config::EnvSettings& settings, const env::EnvRegistry& registry,
                                                const std::shared_ptr<envhost::HostPool>& pool,
                                                const env::ConformanceOptions& options) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<env::MultiAgentEnv> made,
                          config::MakeEnv(settings, registry, nullptr, pool));
  const absl::Duration begun = options.clock->SteadyNow();
  // `share`: of the time, at the end of which it has to be over.
  const auto check = [&](const config::EnvSettings& of, double share) {
    env::ConformanceOptions rest = options;
    rest.max_time = begun + share * options.max_time - options.clock->SteadyNow();
    return env::CheckConformance([&] { return config::MakeEnv(of, registry, nullptr, pool); }, rest);
  };
  config::EnvSettings bare = settings;
  bare.wrappers = {};
  bare.wrappers.dict_keys = {"", ""};
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<env::MultiAgentEnv> inner,
                          config::MakeEnv(bare, registry, nullptr, pool));
  const bool wrapped = inner->spec().ToString() != made->spec().ToString();
  if (!wrapped) return check(settings, 1);
  env::ConformanceReport report = check(bare, 0.5);
  if (report.ok()) report = check(settings, 1);
  return report;
}

std::string ScalingLine(const env::EnvSpec& spec) {
  std::vector<policy::PolicySpec> policies;
  for (const env::AgentSpec& agent : spec.possible_agents) {
    policy::PolicySpec& policy = policies.emplace_back();
    policy.id = policy::PolicyId(agent.id.value());
    policy.observation_space = agent.observation_space;
    policy.action_space = agent.action_space;
    policy.action_scaling = policy.HasContinuousActions() && policy.HasBoundedActions();
  }
  return absl::StrCat("scaling: ", policy::ScalingText(policies), "\n");
}

std::string AdviceText(const env::ConformanceReport& report) {
  std::string text;
  for (const env::ConformanceLine& line : report.lines) {
    // Where a message says what was expected, it is the advice.
    const bool is_said = line.rule == env::EnvRule::kNoError && absl::StrContains(line.detail, "expected ");
    if (line.ok || is_said) continue;
    const bool is_late = absl::StrContains(line.detail, "did not answer within");
    text += absl::StrCat("what to do: ",
                         is_late ? "Look what takes the step so long, or give it more time: env.python.step_timeout_s."
                                 : std::string(env::EnvRuleAdvice(line.rule)),
                         " (", std::string(env::EnvRuleName(line.rule)), ")\n");
  }
  return text;
}

}  // namespace troupe::cli
