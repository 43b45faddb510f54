#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/plugin_env.h"
#include "lib/env/registry.h"

namespace troupe::config {

/// An environment as a configuration describes it: where it comes from, and what stands between it and the policies.
/// Plain value.
struct EnvSettings {
  std::string name;  ///< `env.name`
  env::EnvArgs args;
  std::string plugin;          ///< the shared library that has it; empty: the registry
  std::string observation_fn;  ///< an env::ObservationFunction; empty: none
};

/// The plug-in at `path`, or where TROUPE_PLUGIN_PATH has one of its name. Errors are those of env::FindEnvPlugin and
/// env::EnvPlugin::Load. Thread-safe.
absl::StatusOr<std::shared_ptr<const env::EnvPlugin>> LoadEnvPlugin(const std::string& path);

/// A new environment, as policies see it. Thread-safe. On an error `key`, where given, is the configuration's key that
/// is to blame ("env.args.N"): NOT_FOUND for an unknown name, INVALID_ARGUMENT for what does not fit, or the
/// environment's own error.
absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> MakeEnv(const EnvSettings& settings,
                                                            const env::EnvRegistry& registry,
                                                            std::string* key = nullptr);

}  // namespace troupe::config
