#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/env/env_spec.h"
#include "lib/outside/episode_step.h"

namespace troupe::outside {

/// What a report says of one agent, checked: what a lane writes.
struct AgentStep {
  base::AgentSlot slot{0};
  std::vector<std::byte> observation;  ///< a row; empty: none
  std::vector<uint8_t> action_mask;
  float reward = 0;
  End end = End::kNone;
  std::vector<space::ActionWord> logged;  ///< its own decision; empty: none
  float logged_logp = 0;

  bool observed() const { return !observation.empty(); }
  bool acts() const { return observed() && end == End::kNone; }
};

/// A step, checked.
struct CheckedStep {
  std::vector<AgentStep> agents;
  std::vector<float> state;
  uint64_t weights = 0;  ///< unchecked
};

/// Which call brings a step.
enum class StepKind : uint8_t {
  kGetActions,  ///< some agent acts, and none has an action
  kLogActions,  ///< some agent acts, and each that does has an action
  kEnd,         ///< no agent acts
};

/// A report as a step of a world of this spec, whatever its episode was before. INVALID_ARGUMENT: an agent that is
/// unknown or there twice, that says nothing, or a row, mask, state, reward or action that does not fit; the message
/// names the agent.
absl::StatusOr<CheckedStep> CheckStep(const env::EnvSpec& spec, StepKind kind, const StepReport& report);

/// Whether an agent may have got so much in a step: a number within kMaxAbsReward.
bool IsReward(double reward);

/// Words of an action of `space` for clients, and back. INVALID_ARGUMENT: not as many as the space has.
ClientAction ToClient(const space::Space& space, const space::ActionWord* words);
absl::StatusOr<std::vector<space::ActionWord>> FromClient(const space::Space& space, const ClientAction& action);

}  // namespace troupe::outside
