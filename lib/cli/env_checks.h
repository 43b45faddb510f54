#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/make_env.h"
#include "lib/config/run_config.h"
#include "lib/env/conformance.h"
#include "lib/env/registry.h"

namespace CLI {
class App;
}

/// What commands about environments share: their flags, and the checks.
namespace troupe::cli {

/// An environment as the command line names it. Plain value.
struct NamedEnv {
  std::string name;
  std::vector<std::string> args;       ///< "N=3"
  std::vector<std::string> overrides;  ///< "env.x=y"
  std::string plugin;
  std::string python;
};
void AddEnvFlags(CLI::App* command, NamedEnv* named);

env::EnvRegistry AllEnvs();

/// The configuration that has this environment and no more, so that types, paths and errors are a configuration's.
absl::StatusOr<config::RunConfig> ConfigOf(const NamedEnv& named);

/// Says on stdout what the environment was recognized as, and has the check say each rule as soon as it is broken, and
/// once a second how far it is.
void SayAsItGoes(const std::string& recognized_as, env::ConformanceOptions* options);

/// What an environment in Python was taken for, with the number of its agents. Empty: it is none (`pool` is null).
absl::StatusOr<std::string> RecognizedAs(const config::EnvSettings& settings, const env::EnvRegistry& registry,
                                         const std::shared_ptr<envhost::HostPool>& pool);

/// Plays random episodes and checks every rule of the contract, first without what stands between the environment and
/// the policies: wrappers keep rows, and what is wrong with those is seen only where nothing does.
absl::StatusOr<env::ConformanceReport> CheckEnv(const config::EnvSettings& settings, const env::EnvRegistry& registry,
                                                const std::shared_ptr<envhost::HostPool>& pool,
                                                const env::ConformanceOptions& options);

/// How policies with default settings read the agents' observations and what becomes of their actions, a line.
std::string ScalingLine(const env::EnvSpec& spec);

/// What the rules that are broken say to do, a line each.
std::string AdviceText(const env::ConformanceReport& report);

}  // namespace troupe::cli
