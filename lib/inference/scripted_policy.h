#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/base/philox.h"
#include "lib/policy/policy_fwd.h"
#include "lib/space/space.h"

namespace troupe::inference {

/// What a scripted policy knows of one decision. Borrowed for the call.
struct ScriptedDecision {
  const policy::PolicySpec& spec;
  absl::Span<const float> obs = {};            ///< [observation_size]; empty when observations are uint8
  absl::Span<const uint8_t> uint8_obs = {};    ///< [observation_size]; empty unless they are
  absl::Span<const uint8_t> action_mask = {};  ///< [mask_size]; allows something in every leaf; empty without a mask
  base::AgentSlot agent_slot;
  base::PhiloxSequence
      random;  ///< the decision's own: a pure function of the seed, the episode, the agent and the step
};

/// A policy that is a function from a decision to an action. `act` writes action_words() words inside the action space
/// and the mask; it keeps nothing, does not block and does not allocate. `check` says why it cannot play a spec
/// (INVALID_ARGUMENT).
struct ScriptedPolicy {
  std::string_view name;
  absl::Status (*check)(const policy::PolicySpec& spec);
  void (*act)(ScriptedDecision& decision, absl::Span<space::ActionWord> action);
};

/// A registered function, what `class: scripted:NAME` names; NOT_FOUND gives the nearest name, or all:
///   always_same     the first action that the mask allows, for ever; discrete actions only
///   beat_last       rock_paper_scissors: what beats the other's last hand, and a random one in the first round
///   one_move_ahead  connect_four: the fourth in a line of its own, else the place of the other's fourth, else a random
///                   column
absl::StatusOr<const ScriptedPolicy*> FindScriptedPolicy(std::string_view name);

/// What `class: random` plays: uniform over the action space, within the mask. Refuses an unbounded Box.
const ScriptedPolicy& UniformPolicy();

}  // namespace troupe::inference
