#include <utility>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lib/base/status_macros.h"
#include "lib/config/external.h"
#include "lib/config/make_env.h"
#include "lib/config/resolved_run.h"
#include "lib/policy/python_callable.h"
#include "proto/troupe/v1/config.pb.h"

namespace troupe::config {
namespace {

/// What stands between the environment and the policies.
absl::StatusOr<env::WrapperOptions> WrappersOf(const RunConfig& config) {
  const v1::EnvConfig& env = config.proto().env();
  env::WrapperOptions wrappers;
  wrappers.max_episode_steps = env.max_episode_steps();
  wrappers.dict_keys = {.state = env.state_key(), .action_mask = env.action_mask_key()};
  wrappers.crop.assign(env.crop().values().begin(), env.crop().values().end());
  wrappers.grayscale = env.grayscale();
  wrappers.resize.assign(env.resize().values().begin(), env.resize().values().end());
  for (const v1::AgentGroup& from : env.groups()) {
    env::AgentGroup& group = wrappers.groups.emplace_back();
    group.name = from.name();
    group.agents = {from.agents().begin(), from.agents().end()};
    // The text was checked when it was read.
    if (!from.obs_space().empty()) {
      TROUPE_ASSIGN_OR_RETURN(group.observation_space, space::ParseSpace(from.obs_space()));
    }
    if (!from.act_space().empty()) {
      TROUPE_ASSIGN_OR_RETURN(group.action_space, space::ParseSpace(from.act_space()));
    }
  }
  wrappers.rewards.scale = env.reward_scale();
  if (env.has_reward_clip()) {
    wrappers.rewards.low = env.reward_clip().low();
    wrappers.rewards.high = env.reward_clip().high();
  }
  wrappers.frame_stack = env.frame_stack();
  wrappers.previous_step = {.action = env.previous_action(), .reward = env.previous_reward()};
  const std::string& observation_fn = config.proto().multi_agent().observation_fn();
  if (!policy::IsPythonName(observation_fn)) wrappers.observation_fn = observation_fn;
  return wrappers;
}

envhost::HostOptions PythonOptionsOf(const v1::PythonConfig& python) {
  envhost::HostOptions options;
  options.interpreter = python.interpreter();
  options.folder = python.folder();
  options.processes = python.processes();
  options.start_timeout = absl::Seconds(python.start_timeout_s());
  options.step_timeout = absl::Seconds(python.step_timeout_s());
  options.max_restarts = python.max_restarts();
  options.restart_window = absl::Seconds(python.restart_window_s());
  options.fork_server = python.fork_server();
  options.path = absl::StrSplit(python.path(), ':', absl::SkipEmpty());
  options.global_state = !python.has_global_state() || python.global_state();
  return options;
}

}  // namespace

absl::StatusOr<EnvSettings> EnvSettingsOf(const RunConfig& config) {
  const v1::EnvConfig& env = config.proto().env();
  EnvSettings settings;
  settings.name = env.name();
  settings.args = EnvArgsOf(config);
  settings.plugin = env.plugin();
  TROUPE_ASSIGN_OR_RETURN(settings.wrappers, WrappersOf(config));
  settings.python = PythonOptionsOf(env.python());
  const std::string& observation_fn = config.proto().multi_agent().observation_fn();
  if (policy::IsPythonName(observation_fn)) {
    const absl::Status named = policy::ValidatePythonName(observation_fn);
    if (!named.ok()) return config.KeyError("multi_agent.observation_fn", std::string(named.message()));
    settings.python.observation_fn = observation_fn;
  }
  if (IsExternal(config)) {
    TROUPE_ASSIGN_OR_RETURN(settings.external, ExternalSpecOf(config));
    settings.name = settings.external->name;
  }
  return settings;
}

}  // namespace troupe::config
