#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/plugin_env.h"
#include "lib/env/registry.h"
#include "lib/env/wrappers.h"
#include "lib/envhost/host_options.h"
#include "lib/envhost/host_pool.h"
#include "lib/envhost/python_functions.h"
#include "lib/inference/actor_host.h"

namespace troupe::config {

/// An environment as a configuration describes it: where it comes from, and what stands between it and the policies.
/// Plain value.
struct EnvSettings {
  std::string name;  ///< `env.name`
  env::EnvArgs args;
  std::string plugin;  ///< the shared library that has it; empty: the registry
  env::WrapperOptions wrappers;
  envhost::HostOptions python;  ///< `env.python`, where the name begins with "python:"
  /// What a world outside is (`env.external`); null: the environment is none.
  std::shared_ptr<const env::EnvSpec> external;
};

/// The processes for the Python environments of `settings`, to be shared by all that one worker (or evaluation) makes;
/// null where the environment is none of Python's. Starts nothing yet. `tracks`: of settings.python.callbacks, where
/// there are some. Errors as MakeEnv's.
absl::StatusOr<std::shared_ptr<envhost::HostPool>> MakeHostPool(
    const EnvSettings& settings, std::string* key = nullptr, std::shared_ptr<envhost::EpisodeTracks> tracks = nullptr);

/// Where mapping functions and policies in Python are asked: `env.python`, whatever the environment is. Starts nothing
/// before it is used.
std::shared_ptr<envhost::PythonFunctions> MakePythonFunctions(const EnvSettings& settings);
/// What plays policies in Python for who answers queries: each in a process of its own.
std::shared_ptr<inference::ActorHost> MakeQueriedPolicyHost(const EnvSettings& settings);

/// The plug-in at `path`, or where TROUPE_PLUGIN_PATH has one of its name. Errors are those of env::FindEnvPlugin and
/// env::EnvPlugin::Load. Thread-safe.
absl::StatusOr<std::shared_ptr<const env::EnvPlugin>> LoadEnvPlugin(const std::string& path);

/// A new environment, as policies see it. Thread-safe. On an error `key`, where given, is the configuration's key that
/// is to blame ("env.args.N"): NOT_FOUND for an unknown name, INVALID_ARGUMENT for what does not fit, or the
/// environment's own error. `pool`: what MakeHostPool gave; a Python environment without one gets a process of its own.
absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> MakeEnv(const EnvSettings& settings,
                                                            const env::EnvRegistry& registry,
                                                            std::string* key = nullptr,
                                                            std::shared_ptr<envhost::HostPool> pool = nullptr);

}  // namespace troupe::config
