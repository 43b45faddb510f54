#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::envs {

/// `two_step_game`: the game of the QMIX paper (Rashid et al. 2018, section 6). In the first step agent_1 chooses the
/// second one, and agent_2's action does nothing: 0 gives game 2A, which pays 7 whatever is played, 1 gives game 2B,
/// which pays 0 for actions (0, 0), 8 for (1, 1) and 1 otherwise. The payoff is the team's; as in RLlib's TwoStepGame
/// each agent gets half of it, so that the sum over agents (`return_sum`) is the paper's number: 7 is safe, 8 the best.
///
/// Observation, float32 [4], RLlib's with one_hot_state_encoding: which of the states first, 2A, 2B it is, one-hot [0,
/// 3), and the agent's number, 1 or 2 [3]. Global state, one an environment step: the state, one-hot [3]. Actions:
/// Discrete(2). Terminated after the second step, with a last observation. Not thread-safe; no heap allocation in Step.
class TwoStepGame final : public env::MultiAgentEnv {
 public:
  static constexpr int32_t kStates = 3;

  TwoStepGame();

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;

 private:
  enum State : int32_t { kFirst, k2A, k2B };

  void WriteObservations(env::StepWriter& out) const;

  const env::EnvSpec spec_;
  State state_ = kFirst;
};

}  // namespace troupe::envs
