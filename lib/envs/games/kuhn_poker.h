#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "lib/envs/games/turn_game.h"

namespace troupe::envs {

/// `kuhn_poker`: Kuhn's poker for two (Kuhn, "A simplified two-person poker", 1950): three cards, one to each player,
/// one chip each in the pot; then pass or bet one more chip in turn, until both have passed, or somebody's bet was
/// answered. A pass after a bet loses the pot; otherwise the higher card wins it. The deal follows from the episode's
/// seed.
///
/// Observation, float32 [11], OpenSpiel's information state tensor of kuhn_poker: the player, one-hot [0, 2); its card,
/// one-hot [2, 5); for each of up to three actions so far, pass or bet, one-hot [5, 11). Actions: Discrete(2) = pass,
/// bet; both are always allowed, there is no mask. Reward at the end: chips won, -2 to 2. Agents player_0, who begins,
/// and player_1. With best play player_0 loses 1/18 a game.
class KuhnPoker final : public TurnGame {
 public:
  static constexpr int32_t kCards = 3;
  static constexpr int32_t kPass = 0;
  static constexpr int32_t kBet = 1;
  static constexpr int32_t kMaxActions = 3;
  static constexpr int32_t kObservationSize = 2 + kCards + 2 * kMaxActions;
  using Deal = std::array<int32_t, 2>;  ///< card of each player, 0 the lowest

  /// With `deal` every episode has this one.
  explicit KuhnPoker(std::optional<Deal> deal = std::nullopt);

 private:
  void Start(const env::EpisodeSeed& seed) override;
  bool Allows(int32_t action) const override;
  Outcome Play(int32_t player, int32_t action) override;
  void WriteObservation(int32_t player, float* row) const override;

  const std::optional<Deal> fixed_deal_;
  Deal deal_{};
  std::array<int32_t, kMaxActions> actions_{};
  int32_t num_actions_ = 0;
};

}  // namespace troupe::envs
