#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::envs {

/// A zero-sum game of two players who move in turn, the agent of slot 0 first; both have the same spaces, Discrete(n)
/// actions, and a mask where the spec declares one. Only the player to move is observed, so the other one waits; at the
/// end both are, with a mask that allows nothing. Rewards come at the end alone.
///
/// An action that the mask forbids ends the game: -1 for who played it, 0 for the other (as PettingZoo's classic
/// games). Not thread-safe. No heap allocation in Step.
class TurnGame : public env::MultiAgentEnv {
 public:
  const env::EnvSpec& spec() const final { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) final;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) final;

 protected:
  struct Outcome {
    bool over = false;
    float first_return = 0;  ///< of slot 0, once over; slot 1 gets the opposite
  };

  explicit TurnGame(env::EnvSpec spec);

  virtual void Start(const env::EpisodeSeed& seed) = 0;
  /// `action` is inside the action space.
  virtual bool Allows(int32_t action) const = 0;
  /// `action` is allowed; `player` is a slot.
  virtual Outcome Play(int32_t player, int32_t action) = 0;
  /// All of the row, as the player sees the game.
  virtual void WriteObservation(int32_t player, float* row) const = 0;

 private:
  void Observe(int32_t player, bool over, env::StepWriter& out) const;
  absl::Status End(float first_return, float second_return, env::StepWriter& out) const;

  const env::EnvSpec spec_;
  const int32_t num_actions_;
  int32_t to_move_ = 0;
};

}  // namespace troupe::envs
