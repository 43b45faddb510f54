#include "lib/config/make_env.h"

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/env/plugin_env.h"
#include "lib/env/plugin_file.h"
#include "lib/env/wrappers.h"
#include "lib/envhost/python_policy_host.h"
#include "lib/envhost/python_program.h"
#include "lib/outside/lane_env.h"
#include "lib/policy/python_callable.h"

namespace troupe::config {
namespace {

/// The argument without which the environment could be made; empty when no single one is to blame.
std::string CulpritArgument(
    const std::function<absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>>(env::EnvArgs)>& make,
    const env::EnvArgs& args) {
  for (size_t i = 0; i < args.values().size(); ++i) {
    env::ArgMap others = args.values();
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    if (make(env::EnvArgs(others)).ok()) return args.values()[i].first;
  }
  return "";
}

std::string KeyOf(env::WrapperOption option) {
  switch (option) {
    case env::WrapperOption::kMaxEpisodeSteps:
      return "env.max_episode_steps";
    case env::WrapperOption::kDictKeys:
      return "env";  // the text names the Dict's key
    case env::WrapperOption::kCrop:
      return "env.crop";
    case env::WrapperOption::kGrayscale:
      return "env.grayscale";
    case env::WrapperOption::kResize:
      return "env.resize";
    case env::WrapperOption::kGroups:
      return "env.groups";
    case env::WrapperOption::kRewards:
      return "env.reward_scale";  // ranges of reward_clip were checked when they were read
    case env::WrapperOption::kFrameStack:
      return "env.frame_stack";
    case env::WrapperOption::kPreviousStep:
      return "env.previous_action";
    case env::WrapperOption::kObservationFn:
      return "multi_agent.observation_fn";
  }
  return "env";
}

bool IsPython(const EnvSettings& settings) { return policy::IsPythonName(settings.name); }

absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> MakePythonEnv(const EnvSettings& settings,
                                                                  std::shared_ptr<envhost::HostPool> pool,
                                                                  std::string* key) {
  if (pool == nullptr) {
    EnvSettings alone = settings;
    alone.python.processes = 1;
    TROUPE_ASSIGN_OR_RETURN(pool, MakeHostPool(alone, key));
  }
  if (key != nullptr) *key = "env.name";
  return pool->MakeEnv();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const env::EnvPlugin>> LoadEnvPlugin(const std::string& path) {
  const char* const search = std::getenv("TROUPE_PLUGIN_PATH");
  TROUPE_ASSIGN_OR_RETURN(const std::string found, env::FindEnvPlugin(path, search == nullptr ? "" : search));
  return env::EnvPlugin::Load(found);
}

absl::StatusOr<std::shared_ptr<envhost::HostPool>> MakeHostPool(const EnvSettings& settings, std::string* key,
                                                                std::shared_ptr<envhost::EpisodeTracks> tracks) {
  if (!IsPython(settings)) return nullptr;
  const absl::Status interpreter = envhost::FindInterpreter(settings.python.interpreter).status();
  if (!interpreter.ok()) {
    if (key != nullptr) *key = "env.python.interpreter";
    return absl::Status(interpreter.code(),
                        absl::StrCat(interpreter.message(),
                                     " (--python of train, learner and envs; without one $VIRTUAL_ENV's, or python3)"));
  }
  if (key != nullptr) *key = "env.python";
  return envhost::HostPool::Create(settings.python, settings.name, settings.args, std::move(tracks));
}

std::shared_ptr<envhost::PythonFunctions> MakePythonFunctions(const EnvSettings& settings) {
  return envhost::PythonFunctions::Create(settings.python);
}

std::shared_ptr<inference::ActorHost> MakeQueriedPolicyHost(const EnvSettings& settings) {
  return std::make_shared<envhost::PythonPolicyHost>(settings.python);
}

absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> MakeEnv(const EnvSettings& settings,
                                                            const env::EnvRegistry& registry, std::string* key,
                                                            std::shared_ptr<envhost::HostPool> pool) {
  const auto blame = [key](std::string culprit) {
    if (key != nullptr) *key = std::move(culprit);
  };
  const bool is_python = IsPython(settings);
  if (!settings.python.observation_fn.empty() && !is_python) {
    blame("multi_agent.observation_fn");
    return absl::InvalidArgumentError(absl::StrCat(
        "got ", base::LogSafe(settings.python.observation_fn), ", but the environment ", base::LogSafe(settings.name),
        " is not in Python, and a function in Python sees observations in its environment's process alone; expected a "
        "function in C++, or an environment in Python"));
  }
  std::shared_ptr<const env::EnvPlugin> plugin;  // null: the environment is built in
  if (!settings.plugin.empty()) {
    absl::StatusOr<std::shared_ptr<const env::EnvPlugin>> loaded =
        is_python ? absl::InvalidArgumentError(absl::StrCat("is '", base::LogSafe(settings.plugin),
                                                            "', but the environment ", base::LogSafe(settings.name),
                                                            " is in Python; expected one of the two"))
                  : LoadEnvPlugin(settings.plugin);
    if (!loaded.ok()) {
      blame("env.plugin");
      return std::move(loaded).status();
    }
    plugin = *std::move(loaded);
  }
  const auto make = [&](const env::EnvArgs& args) {
    return plugin != nullptr ? plugin->Make(settings.name, args) : registry.Make(settings.name, args);
  };
  absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> env = settings.external != nullptr
                                                                ? outside::MakeSpecEnv(settings.external)
                                                            : is_python ? MakePythonEnv(settings, std::move(pool), key)
                                                                        : make(settings.args);
  if (!env.ok()) {
    if (key == nullptr || is_python) return env;
    if (absl::IsNotFound(env.status())) {
      blame("env.name");
    } else {
      const std::string culprit = CulpritArgument(make, settings.args);
      blame(culprit.empty() ? "env.args" : absl::StrCat("env.args.", base::LogSafe(culprit)));
    }
    return env;
  }
  std::optional<env::WrapperOption> culprit;
  env = env::WithWrappers(*std::move(env), settings.wrappers, &culprit);
  if (culprit.has_value()) {
    const bool of_reward = *culprit == env::WrapperOption::kPreviousStep && !settings.wrappers.previous_step.action;
    blame(of_reward ? "env.previous_reward" : KeyOf(*culprit));
  }
  return env;
}

}  // namespace troupe::config
