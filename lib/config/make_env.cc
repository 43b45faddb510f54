#include "lib/config/make_env.h"

#include <cstdlib>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/env/observation_function.h"
#include "lib/env/plugin_env.h"

namespace troupe::config {
namespace {

/// The argument without which the environment could be made; empty when no single one is to blame.
std::string CulpritArgument(
    const std::function<absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>>(env::EnvArgs)>& make,
    const env::EnvArgs& args) {
  for (const auto& [argument, value] : args.values()) {
    std::map<std::string, env::ArgValue> others = args.values();
    others.erase(argument);
    if (make(env::EnvArgs(others)).ok()) return argument;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::shared_ptr<const env::EnvPlugin>> LoadEnvPlugin(const std::string& path) {
  const char* const search = std::getenv("TROUPE_PLUGIN_PATH");
  TROUPE_ASSIGN_OR_RETURN(const std::string found, env::FindEnvPlugin(path, search == nullptr ? "" : search));
  return env::EnvPlugin::Load(found);
}

absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> MakeEnv(const EnvSettings& settings,
                                                            const env::EnvRegistry& registry, std::string* key) {
  const auto blame = [key](std::string culprit) {
    if (key != nullptr) *key = std::move(culprit);
  };
  std::shared_ptr<const env::EnvPlugin> plugin;  // null: the environment is built in
  if (!settings.plugin.empty()) {
    absl::StatusOr<std::shared_ptr<const env::EnvPlugin>> loaded = LoadEnvPlugin(settings.plugin);
    if (!loaded.ok()) {
      blame("env.plugin");
      return std::move(loaded).status();
    }
    plugin = *std::move(loaded);
  }
  const auto make = [&](const env::EnvArgs& args) {
    return plugin != nullptr ? plugin->Make(settings.name, args) : registry.Make(settings.name, args);
  };
  absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> env = make(settings.args);
  if (!env.ok()) {
    if (key == nullptr) return env;
    if (absl::IsNotFound(env.status())) {
      blame("env.name");
    } else {
      const std::string culprit = CulpritArgument(make, settings.args);
      blame(culprit.empty() ? "env.args" : absl::StrCat("env.args.", base::LogSafe(culprit)));
    }
    return env;
  }
  env = env::WithObservationFunction(*std::move(env), settings.observation_fn);
  if (!env.ok()) blame("multi_agent.observation_fn");
  return env;
}

}  // namespace troupe::config
