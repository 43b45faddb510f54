#include "lib/env/env_rule.h"

#include <string>

#include "absl/strings/cord.h"

namespace troupe::env {
namespace {

constexpr char kPayloadUrl[] = "troupe/env_rule";

}  // namespace

std::string_view EnvRuleName(EnvRule rule) {
  switch (rule) {
    case EnvRule::kSpec:
      return "spec";
    case EnvRule::kReset:
      return "reset";
    case EnvRule::kActions:
      return "actions";
    case EnvRule::kObservedAgents:
      return "observed_agents";
    case EnvRule::kObservationValue:
      return "observation_value";
    case EnvRule::kActionMask:
      return "action_mask";
    case EnvRule::kState:
      return "state";
    case EnvRule::kReward:
      return "reward";
    case EnvRule::kDone:
      return "done";
    case EnvRule::kEpisodeEnd:
      return "episode_end";
    case EnvRule::kInfo:
      return "info";
    case EnvRule::kNoError:
      return "no_error";
    case EnvRule::kDeterminism:
      return "determinism";
  }
  return "unknown";
}

std::string_view EnvRuleDescription(EnvRule rule) {
  switch (rule) {
    case EnvRule::kSpec:
      return "the spec is valid and the same for every instance";
    case EnvRule::kReset:
      return "Reset starts an episode, also in mid-episode, and observes at least one agent";
    case EnvRule::kActions:
      return "every ready agent, and no other, is asked for an action inside its space";
    case EnvRule::kObservedAgents:
      return "only agents that exist and are not done are observed, once a step";
    case EnvRule::kObservationValue:
      return "observations are written whole, finite and inside their space";
    case EnvRule::kActionMask:
      return "action masks are given where declared and allow an action";
    case EnvRule::kState:
      return "the global state is given where declared, finite and inside its space";
    case EnvRule::kReward:
      return "rewards are finite, come in a step and go to agents that are not done";
    case EnvRule::kDone:
      return "only agents that were observed end, and once";
    case EnvRule::kEpisodeEnd:
      return "episodes end with __all__, within max_episode_steps";
    case EnvRule::kInfo:
      return "infos and agent masks are given only as declared";
    case EnvRule::kNoError:
      return "no exception and no error status";
    case EnvRule::kDeterminism:
      return "the same seed and actions give the same bytes";
  }
  return "unknown";
}

std::string_view EnvRuleAdvice(EnvRule rule) {
  switch (rule) {
    case EnvRule::kSpec:
      return "Check the environment's name and arguments, and that its agents and spaces are the same whenever it is "
             "made.";
    case EnvRule::kReset:
      return "Let reset forget the episode before and observe every agent that acts first.";
    case EnvRule::kActions:
      return "Ask for actions by observing agents, and accept every action of their action space.";
    case EnvRule::kObservedAgents:
      return "Observe an agent once a step, only with an id of the spec.";
    case EnvRule::kObservationValue:
      return "Write every element of the observation, or widen the observation space to what the environment gives.";
    case EnvRule::kActionMask:
      return "Give every observed agent a mask with one 0 or 1 for each discrete choice, at least one of them 1.";
    case EnvRule::kState:
      return "Give the global state in every reset and step (for each observed agent when it is per agent), or declare "
             "none.";
    case EnvRule::kReward:
      return "Reward agents that are not done, in a step and before their observation, with finite numbers.";
    case EnvRule::kDone:
      return "End an agent once, and only one that was observed in the episode.";
    case EnvRule::kEpisodeEnd:
      return "End the episode for all agents (__all__) when the last one is done, and within max_episode_steps.";
    case EnvRule::kInfo:
      return "Declare info columns and agent masks in the spec before giving them.";
    case EnvRule::kNoError:
      return "The environment's own code failed, though its actions were all inside their spaces; the traceback names "
             "the line.";
    case EnvRule::kDeterminism:
      return "Draw every random number from the reset's seed, and keep nothing from one episode to the next.";
  }
  return "";
}

absl::Status WithEnvRule(absl::Status status, EnvRule rule) {
  status.SetPayload(kPayloadUrl, absl::Cord(std::string(EnvRuleName(rule))));
  return status;
}

std::optional<EnvRule> EnvRuleOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string name(*payload);
  for (const EnvRule rule : kEnvRules) {
    if (name == EnvRuleName(rule)) return rule;
  }
  return std::nullopt;
}

}  // namespace troupe::env
