#pragma once

#include <functional>
#include <memory>
#include <set>

#include "absl/status/statusor.h"
#include "lib/env/multi_agent_env.h"
#include "lib/inference/actor_host.h"
#include "lib/inference/backend.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_mapping.h"
#include "lib/rollout/ports.h"
#include "lib/rollout/rollout_options.h"
#include "lib/sample/env_counters.h"

namespace troupe::rollout {

/// Makes an environment of the run. Called once for every lane, on the collector's thread.
using EnvFactory = std::function<absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>>()>;

/// What sampling needs to know of a run. Plain value.
struct RolloutConfig {
  // Defined in the .cc, so that who includes this header needs no policy_spec.h.
  RolloutConfig();
  RolloutConfig(const RolloutConfig& other);
  RolloutConfig(RolloutConfig&& other) noexcept;
  RolloutConfig& operator=(const RolloutConfig& other);
  RolloutConfig& operator=(RolloutConfig&& other) noexcept;
  ~RolloutConfig();

  env::EnvSpec env_spec;  ///< every environment's; a factory that gives another is an error
  policy::BySlot<policy::PolicySpec> policies;
  std::set<policy::PolicyId> unplayed;  ///< of them, those that no agent plays: they are not made at the start
  std::shared_ptr<const policy::PolicyMapping> mapping;  ///< asked once per agent and episode
  EnvFactory env_factory;
  /// What else went wrong in the environments that it made, but for `errors`. Asked on the collector's thread; may be
  /// empty.
  std::function<sample::EnvCounters()> env_counters;
  RolloutOptions options;
  /// Where the environments' episodes are played, if outside; borrowed.
  OutsideWorlds* outside = nullptr;
  inference::Backend backend = inference::Backend::kAuto;
  std::shared_ptr<policy::MappingHost> mapping_host = nullptr;  ///< for mapping functions in another process
  std::shared_ptr<inference::ActorHost> actor_host = nullptr;   ///< for policies in another process
  std::shared_ptr<EpisodeListener> listener = nullptr;          ///< null: nobody
};

}  // namespace troupe::rollout
