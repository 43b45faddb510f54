#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/base/ids.h"
#include "lib/base/philox.h"
#include "lib/env/canvas.h"
#include "lib/env/env_spec.h"
#include "lib/space/space.h"

namespace troupe::env {

/// Which episode this is: the learner hands these out, and all of an episode's randomness follows from them.
struct EpisodeSeed {
  uint64_t seed = 0;     ///< the run's seed
  base::EnvId env_id;    ///< global environment id
  uint32_t episode = 0;  ///< ordinal of the episode in this environment

  /// Draws of one stream (kReset: initial state, kDynamics: inside the episode).
  base::PhiloxSequence Sequence(base::RandomStream stream) const {
    return base::PhiloxSequence(base::PhiloxKey::Make(seed, stream), {env_id.value(), episode, 0, 0});
  }
  /// The one number that stands for it where an environment takes one: `reset(seed=…)` in Python. Below 2^63.
  uint64_t ResetSeed() const { return Sequence(base::RandomStream::kReset)() >> 1; }
};

/// The actions of one step: for every slot its action row (Space::action_words() words), or nullptr when the agent does
/// not act.
using ActionRows = absl::Span<const space::ActionWord* const>;

/// Where an environment writes what a Reset or Step brings. The memory belongs to the caller, so a row is written once,
/// where inference and the learner read it. An agent is *ready* when Observe was called for it: only ready agents act
/// next.
///
/// For an agent that is done (TerminateAgent or TruncateAgent, or the episode's end) the environment still calls
/// Observe with its final observation when it has one; it then does not act again. Rewards add up until the agent's
/// next observation. Every row may be written until the Reset or Step returns, and must be whole by then.
///
/// An agent that is observed in a later Step than the one in which it ended returns: a new trajectory of it begins,
/// with nothing remembered, played by the same policy. Used by one thread, only during the call it was given to.
class StepWriter {
 public:
  virtual ~StepWriter() = default;

  /// The agent is ready: gives the row for its flattened observation, `observation_space.flat_size()` elements of
  /// `flat_dtype()` (float or uint8_t), uninitialized; write all of it. Once per agent and call.
  virtual void* Observe(AgentSlot slot) = 0;
  /// After Observe: the row for its action mask, `action_space.mask_size()` bytes. Required when
  /// AgentSpec::has_action_mask.
  virtual uint8_t* ActionMask(AgentSlot slot) = 0;
  /// The row for the global state (kPerEnv: once a call; slot is ignored), `state_space.flat_size()` floats. Required
  /// unless kNone.
  virtual float* State(AgentSlot slot) = 0;
  /// Adds to the agent's reward since its last action; in any Step from that action on, ready or not, but before the
  /// agent's Observe of the same call. What comes before its first action belongs to no action: it counts into its
  /// return alone. Not at Reset, nor for an agent that is done, up to the Step after the one in which it returns.
  virtual void AddReward(AgentSlot slot, float reward) = 0;
  /// The agent's trajectory ends: by the task (terminated), or by a limit (truncated: its value is bootstrapped).
  virtual void TerminateAgent(AgentSlot slot) = 0;
  virtual void TruncateAgent(AgentSlot slot) = 0;
  /// `__all__`: the episode ends for every agent that is not done yet. Required at an episode's end.
  virtual void TerminateAll() = 0;
  virtual void TruncateAll() = 0;
  /// False keeps the agent's next action out of losses and agent_steps (default true). Only with
  /// EnvSpec::has_agent_mask.
  virtual void SetAgentMask(AgentSlot slot, bool active) = 0;
  /// A numeric info of the step; `column` indexes EnvSpec::info_columns.
  virtual void SetInfo(AgentSlot slot, int column, double value) = 0;

  /// Observe for float observations.
  float* ObserveFloat(AgentSlot slot) { return static_cast<float*>(Observe(slot)); }
};

/// An environment of several agents in dense slots. The contract, checked by CheckConformance and at run time by
/// CheckedEnv:
///  1. Reset starts an episode and observes at least one agent.
///  2. Step gets an action for each ready agent and for no other.
///  3. An episode ends by TerminateAll or TruncateAll; then only Reset may follow.
///  4. All randomness comes from the EpisodeSeed: the same seed and actions give the same episode.
///
/// Made by the registry, owned by its VectorEnv or worker. Not thread-safe; may block (Python environments do). A
/// non-OK Status (or an exception, which CheckedEnv turns into one) ends the episode; Reset must work afterwards.
class MultiAgentEnv {
 public:
  virtual ~MultiAgentEnv() = default;

  virtual const EnvSpec& spec() const = 0;
  virtual absl::Status Reset(const EpisodeSeed& seed, StepWriter& out) = 0;
  virtual absl::Status Step(ActionRows actions, StepWriter& out) = 0;

  /// Whether the environment computes elsewhere, in a process of its own, so that several can at the same time. Reset
  /// and Step may then be called in two halves: StartReset or StartStep sends the call off and never waits, Finish
  /// waits for what came of it. Nothing else may be called between; `actions` need not outlive StartStep. A Start that
  /// fails is over: no Finish follows. UNIMPLEMENTED where this is false.
  virtual bool runs_elsewhere() const { return false; }
  virtual absl::Status StartReset(const EpisodeSeed& /*seed*/) { return NotInHalves(); }
  virtual absl::Status StartStep(ActionRows /*actions*/) { return NotInHalves(); }
  virtual absl::Status Finish(StepWriter& /*out*/) { return NotInHalves(); }

  /// Draws the state after the last Reset or Step, for people: View first, then everything in it. Changes nothing that
  /// the episode depends on. UNIMPLEMENTED: this environment has no picture.
  virtual absl::Status Draw(Canvas& canvas) const;

  /// For who watches episodes from within (callbacks beside an environment in Python): nothing of an episode depends on
  /// either, and nobody need tell. NoteDecision: the policy that plays an agent, and the log-probability of the agent's
  /// action, before the Step in which it acts
  /// first. NoteEnd: the episode is over by its own end or a limit, after the call that ended it; may block.
  virtual void NoteDecision(AgentSlot /*slot*/, std::string_view /*policy*/, float /*log_prob*/) {}
  virtual void NoteEnd() {}

  /// Episodes since it was made that ended because every agent was done, without `__all__`. CheckedEnv counts them; who
  /// stands before another environment gives what was counted there, too.
  virtual int64_t missing_all_count() const { return 0; }

 private:
  absl::Status NotInHalves() const;
};

}  // namespace troupe::env
