#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/registry.h"

namespace troupe::envs {

/// `cartpole`: K agents, each with a cart and pole of its own; the dynamics of Gymnasium 1.x's CartPole-v1 in double
/// precision (Barto, Sutton, Anderson, "Neuronlike adaptive elements that can solve difficult learning control
/// problems", 1983; Euler steps of 0.02 s), the agents as in RLlib's MultiAgentCartPole: who falls is terminated alone
/// and gets a last observation, the others go on, and the episode ends when nobody is left. At max_episode_steps those
/// left are truncated.
///
/// Observation, float32: position, velocity, angle (radians), angular velocity; with `velocities: false` position and
/// angle alone, of which a policy has to remember the last ones. Actions: Discrete(2) = push left, push
/// right. Reward 1 a step, also for the one in which the pole falls (with sutton_barto_reward: 0, and -1 for that
/// step). No global state.
///
/// Not thread-safe. No heap allocation in Step.
class Cartpole final : public env::MultiAgentEnv {
 public:
  struct Options {
    int num_agents = 2;
    int64_t max_episode_steps = 500;
    bool sutton_barto_reward = false;
    bool velocities = true;
  };
  /// Position, velocity, angle, angular velocity.
  using CartState = std::array<double, 4>;

  explicit Cartpole(const Options& options);
  /// Arguments num_agents, max_episode_steps, sutton_barto_reward, velocities. INVALID_ARGUMENT names the bad one.
  static absl::StatusOr<std::unique_ptr<Cartpole>> Make(env::EnvArgs args);

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  /// Like Reset, from these states, one an agent (INVALID_ARGUMENT for another number).
  absl::Status ResetTo(absl::Span<const CartState> states, env::StepWriter& out);
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;
  absl::Status Draw(env::Canvas& canvas) const override;

  absl::Span<const CartState> states() const { return states_; }

 private:
  void Start(env::StepWriter& out);
  void WriteObservation(int32_t agent, env::StepWriter& out) const;

  const Options options_;
  const env::EnvSpec spec_;
  std::vector<CartState> states_;
  std::vector<uint8_t> done_;
  int num_left_ = 0;
  int64_t step_ = 0;
};

/// Adds `cartpole`.
void RegisterCartpole(env::EnvRegistry& registry);

}  // namespace troupe::envs
