#pragma once

#include <array>
#include <cstdint>

#include "lib/envs/games/turn_game.h"

namespace troupe::envs {

/// `connect_four`: four of one's own in a line on a standing board of 6 rows and 7 columns. Rows, masks and agent ids
/// (player_0, who begins, and player_1) are those of PettingZoo's connect_four_v3, so that policies of one play the
/// other.
///
/// Observation, float32 [6, 7, 2]: rows from the top, columns from the left; for each place 1 where the player's own
/// piece is, and 1 where the other's is. Actions: Discrete(7), the column a piece is dropped into; the mask forbids
/// full ones. Reward at the end: 1 and -1, or 0 to both when the board is full.
class ConnectFour final : public TurnGame {
 public:
  static constexpr int32_t kRows = 6;
  static constexpr int32_t kColumns = 7;

  ConnectFour();

  absl::Status Draw(env::Canvas& canvas) const override;

 private:
  void Start(const env::EpisodeSeed& seed) override;
  bool Allows(int32_t action) const override;
  Outcome Play(int32_t player, int32_t action) override;
  void WriteObservation(int32_t player, float* row) const override;

  // Of each player, seven bits a column, from the bottom; the seventh is always 0, so that no line goes on into the
  // next column.
  std::array<uint64_t, 2> pieces_{};
  std::array<int32_t, kColumns> heights_{};
};

}  // namespace troupe::envs
