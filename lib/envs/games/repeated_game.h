#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/env/env_spec.h"
#include "lib/env/multi_agent_env.h"

namespace troupe::envs {

/// What each joint action pays.
struct PayoffTable {
  std::vector<int32_t> num_actions;  ///< of each player
  std::vector<float> rewards;  ///< [joint actions, players]; joint actions row-major, the first player's outermost
};

/// A matrix game that its players, player_0, player_1 …, play at the same time, `rounds` times in an episode; after the
/// last round it is terminated, with a last observation. Nothing is random.
///
/// Observation, float32: what everybody played in the last round, one-hot, one after another: the agent itself, the
/// next player, and so on round the table; then 1. Before the first round all are 0. Actions: Discrete(n), n the
/// player's own. No global state. Not thread-safe; no heap allocation in Step.
class RepeatedGame final : public env::MultiAgentEnv {
 public:
  /// `payoffs`: of two players at least, one action each at least, and a reward for each joint action and player.
  RepeatedGame(std::string name, PayoffTable payoffs, int64_t rounds);

  const env::EnvSpec& spec() const override { return spec_; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;

 private:
  void WriteObservations(env::StepWriter& out) const;

  const PayoffTable payoffs_;
  const int64_t rounds_;
  const size_t num_players_;
  const int64_t observation_size_;
  const env::EnvSpec spec_;
  int64_t round_ = 0;            // played
  std::vector<int32_t> played_;  // in the last round, by player
};

/// `rock_paper_scissors`, argument rounds: 0 rock, 1 paper, 2 scissors; 1 to the winner, -1 to the loser.
absl::StatusOr<std::unique_ptr<RepeatedGame>> MakeRockPaperScissors(env::EnvArgs args);
/// `matching_pennies`, argument rounds: 0 heads, 1 tails; player_0 wins 1 from player_1 when they are equal, else
/// loses 1.
absl::StatusOr<std::unique_ptr<RepeatedGame>> MakeMatchingPennies(env::EnvArgs args);
/// `matrix_game`, arguments payoffs, kind and rounds: any game of 2 to 15 players. INVALID_ARGUMENT names the bad one.
absl::StatusOr<std::unique_ptr<RepeatedGame>> MakeMatrixGame(env::EnvArgs args);

}  // namespace troupe::envs
