#include "lib/config/make_env.h"

#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/env/wrappers.h"

namespace troupe::config {
namespace {

/// The argument without which the environment could be made; empty when no single one is to blame.
std::string CulpritArgument(const env::EnvRegistry& registry, std::string_view name, const env::EnvArgs& args) {
  for (const auto& [argument, value] : args.values()) {
    std::map<std::string, env::ArgValue> others = args.values();
    others.erase(argument);
    if (registry.Make(name, env::EnvArgs(others)).ok()) return argument;
  }
  return "";
}

std::string KeyOf(env::WrapperOption option) {
  switch (option) {
    case env::WrapperOption::kMaxEpisodeSteps:
      return "env.max_episode_steps";
    case env::WrapperOption::kDictKeys:
      return "env";  // the text names the Dict's key
    case env::WrapperOption::kGroups:
      return "env.groups";
    case env::WrapperOption::kRewards:
      return "env.reward_scale";  // ranges of reward_clip were checked when they were read
    case env::WrapperOption::kFrameStack:
      return "env.frame_stack";
    case env::WrapperOption::kObservationFn:
      return "multi_agent.observation_fn";
  }
  return "env";
}

}  // namespace

absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> MakeEnv(const EnvSettings& settings,
                                                            const env::EnvRegistry& registry, std::string* key) {
  const auto blame = [key](std::string culprit) {
    if (key != nullptr) *key = std::move(culprit);
  };
  absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> env = registry.Make(settings.name, settings.args);
  if (!env.ok()) {
    if (key == nullptr) return env;
    if (absl::IsNotFound(env.status())) {
      blame("env.name");
    } else {
      const std::string culprit = CulpritArgument(registry, settings.name, settings.args);
      blame(culprit.empty() ? "env.args" : absl::StrCat("env.args.", base::LogSafe(culprit)));
    }
    return env;
  }
  std::optional<env::WrapperOption> culprit;
  env = env::WithWrappers(*std::move(env), settings.wrappers, &culprit);
  if (culprit.has_value()) blame(KeyOf(*culprit));
  return env;
}

}  // namespace troupe::config
