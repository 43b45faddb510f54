#pragma once

#include <array>
#include <cstdint>

#include "lib/envs/games/turn_game.h"

namespace troupe::envs {

/// `tic_tac_toe`: three marks in a row on a board of 3 x 3. Rows, masks and agent ids (player_1, who begins, and
/// player_2) are those of PettingZoo's tictactoe_v3, so that policies of one play the other.
///
/// Cells are numbered column by column: 0 1 2 is the left column, from the top. Observation, float32 [3, 3, 2]: for
/// each cell, in that order, 1 where the player's own mark is, and 1 where the other's is. Actions: Discrete(9), the
/// cell; the mask forbids those that are taken. Reward at the end: 1 and -1, or 0 to both when the board is full.
class TicTacToe final : public TurnGame {
 public:
  static constexpr int32_t kCells = 9;

  TicTacToe();

  absl::Status Draw(env::Canvas& canvas) const override;

 private:
  void Start(const env::EpisodeSeed& seed) override;
  bool Allows(int32_t action) const override;
  Outcome Play(int32_t player, int32_t action) override;
  void WriteObservation(int32_t player, float* row) const override;

  std::array<uint32_t, 2> marks_{};  // of each player, a bit a cell
};

}  // namespace troupe::envs
