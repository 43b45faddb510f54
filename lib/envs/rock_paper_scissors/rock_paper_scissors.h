#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"
#include "lib/env/registry.h"

namespace troupe::envs {

/// `rock_paper_scissors`: two agents, player_0 and player_1, who show their hands at the same time, `rounds` times in
/// an episode; after the last round it is terminated, with a last observation. Nothing is random.
///
/// Observation, float32 [7], the same in every round but the first: what the agent itself played in the last round,
/// one-hot [0, 3), what the other played, one-hot [3, 6), and 1 [6]. Before the first round all seven are 0. Actions:
/// Discrete(3) = rock, paper, scissors. Reward of a round: 1 to the winner, -1 to the loser, 0 to both when equal. No
/// global state.
///
/// Not thread-safe. No heap allocation in Step.
class RockPaperScissors final : public env::MultiAgentEnv {
 public:
  static constexpr int32_t kHands = 3;
  static constexpr int32_t kObservationSize = 2 * kHands + 1;

  explicit RockPaperScissors(int64_t rounds);
  /// Argument rounds. INVALID_ARGUMENT names a bad one.
  static absl::StatusOr<std::unique_ptr<RockPaperScissors>> Make(env::EnvArgs args);

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;

 private:
  void WriteObservations(env::StepWriter& out) const;

  const int64_t rounds_;
  const env::EnvSpec spec_;
  int64_t round_ = 0;  // played
  std::array<int32_t, 2> hands_{};
};

/// Adds `rock_paper_scissors`.
void RegisterRockPaperScissors(env::EnvRegistry& registry);

}  // namespace troupe::envs
