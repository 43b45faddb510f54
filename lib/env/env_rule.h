#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace troupe::env {

/// The rules of the contract between an environment and its caller, as conformance reports list them. An error of
/// CheckedEnv carries the rule it is about, so that nobody must read its message.
enum class EnvRule : uint8_t {
  kSpec,     ///< the spec is valid and the same for every instance
  kReset,    ///< Reset starts an episode, also in mid-episode, and observes at least one agent
  kActions,  ///< an action, inside its space, for each ready agent and no other; no Step after the end (the caller's
             ///< duty)
  kObservedAgents,    ///< observes only agents that exist and are not done, once a call
  kObservationValue,  ///< observations are written whole, finite and inside their space
  kActionMask,        ///< masks where declared, and an allowed action in each
  kState,             ///< the global state where declared, finite
  kReward,            ///< finite rewards, in a step and for agents that are not done
  kDone,              ///< only agents that were observed end, once
  kEpisodeEnd,        ///< an episode ends with `__all__`, within max_episode_steps
  kInfo,              ///< infos and agent masks only as declared
  kNoError,           ///< no exception and no error status
  kDeterminism,       ///< the same seed and actions give the same bytes
};

/// All of them, in order.
inline constexpr EnvRule kEnvRules[] = {
    EnvRule::kSpec,       EnvRule::kReset,   EnvRule::kActions,    EnvRule::kObservedAgents, EnvRule::kObservationValue,
    EnvRule::kActionMask, EnvRule::kState,   EnvRule::kReward,     EnvRule::kDone,           EnvRule::kEpisodeEnd,
    EnvRule::kInfo,       EnvRule::kNoError, EnvRule::kDeterminism};

/// "observation_value"; stable, for reports and machines.
std::string_view EnvRuleName(EnvRule rule);
/// One sentence for people.
std::string_view EnvRuleDescription(EnvRule rule);

/// What whoever wrote the environment can do about a broken rule, one sentence.
std::string_view EnvRuleAdvice(EnvRule rule);

/// `status` with the rule attached as a payload.
absl::Status WithEnvRule(absl::Status status, EnvRule rule);
/// The rule that WithEnvRule attached, if any.
std::optional<EnvRule> EnvRuleOf(const absl::Status& status);

}  // namespace troupe::env
