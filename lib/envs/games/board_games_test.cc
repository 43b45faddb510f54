#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envs/games/connect_four.h"
#include "lib/envs/games/testing/game_table.h"
#include "lib/envs/games/tic_tac_toe.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GameTable NewTicTacToe() { return GameTable(std::make_unique<TicTacToe>()); }
GameTable NewConnectFour() { return GameTable(std::make_unique<ConnectFour>()); }

TEST(TicTacToeTest, EveryRowOfAGame) {
  GameTable game = NewTicTacToe();
  EXPECT_EQ(game.env().spec().possible_agents[0].id.value(), "player_1");
  EXPECT_EQ(game.env().spec().possible_agents[1].id.value(), "player_2");
  EXPECT_EQ(game.env().spec().max_episode_steps, 9);
  // Two elements a cell: own, other.
  EXPECT_TRUE(game.Ready(0));
  EXPECT_FALSE(game.Observed(1));
  EXPECT_EQ(game.Row(0), "000000000000000000");
  EXPECT_EQ(game.Mask(0), "111111111");
  game.Play({4, std::nullopt});
  EXPECT_TRUE(game.Ready(1));
  EXPECT_FALSE(game.Observed(0)) << "who waits is not observed";
  EXPECT_EQ(game.Row(1), "000000000100000000");
  EXPECT_EQ(game.Mask(1), "111101111");
  game.Play({std::nullopt, 0});
  EXPECT_EQ(game.Row(0), "010000001000000000");
  EXPECT_EQ(game.Mask(0), "011101111");
  game.Play({3, std::nullopt});
  EXPECT_EQ(game.Row(1), "100000010100000000");
  EXPECT_THAT(game.Rewards(), ElementsAre(0, 0));
  game.Play({std::nullopt, 1});
  EXPECT_EQ(game.Row(0), "010100101000000000");
  EXPECT_FALSE(game.Over());
  game.Play({5, std::nullopt});  // the middle column
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(1, -1));
  EXPECT_EQ(game.Row(0), "010100101010000000");
  EXPECT_EQ(game.Row(1), "101000010101000000");
  EXPECT_EQ(game.Mask(0), "000000000");
  EXPECT_EQ(game.Mask(1), "000000000");
}

TEST(TicTacToeTest, EveryLineWins) {
  for (const auto& line :
       {std::array<int32_t, 3>{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 3, 6}, {1, 4, 7}, {2, 5, 8}, {0, 4, 8}, {2, 4, 6}}) {
    // The other side plays elsewhere, without a line of its own: two cells are never one.
    std::vector<int32_t> elsewhere;
    for (int32_t cell = 0; cell < 9; ++cell) {
      if (cell != line[0] && cell != line[1] && cell != line[2]) elsewhere.push_back(cell);
    }
    GameTable game = NewTicTacToe();
    game.PlayInTurn({line[0], elsewhere[0], line[2], elsewhere[1]});
    EXPECT_FALSE(game.Over());
    game.Play({line[1], std::nullopt});
    EXPECT_TRUE(game.Over()) << line[0] << line[1] << line[2];
    EXPECT_THAT(game.Rewards(), ElementsAre(1, -1));
  }
}

TEST(TicTacToeTest, SecondPlayerWinsAndNobodyWins) {
  GameTable game = NewTicTacToe();
  game.PlayInTurn({0, 2, 1, 4, 8, 6});
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(-1, 1));
  game.Reset();
  EXPECT_EQ(game.Row(0), "000000000000000000") << "a new game knows nothing of the old one";
  game.PlayInTurn({0, 1, 2, 4, 3, 5, 7, 6});
  EXPECT_FALSE(game.Over());
  game.Play({8, std::nullopt});
  EXPECT_TRUE(game.Over()) << "the board is full";
  EXPECT_THAT(game.Rewards(), ElementsAre(0, 0));
  game.Reset();
  game.PlayInTurn({0, 1, 2, 4, 3, 5, 8, 6});
  game.Play({7, std::nullopt});
  EXPECT_THAT(game.Rewards(), ElementsAre(0, 0));
  game.Reset();
  game.PlayInTurn({0, 3, 4, 1, 2, 5, 7, 6});
  game.Play({8, std::nullopt});
  EXPECT_THAT(game.Rewards(), ElementsAre(1, -1)) << "a line on the last cell wins, full or not";
}

TEST(TicTacToeTest, ATakenCellLosesTheGame) {
  GameTable game = NewTicTacToe();
  game.PlayInTurn({4, 4});
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(0, -1));
  EXPECT_EQ(game.Row(0), "000000001000000000");
  game.Reset();
  game.PlayInTurn({4, 0, 0});
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(-1, 0));
}

TEST(TurnGameTest, RefusesActionsOutsideTheSpaceAndOutOfTurn) {
  GameTable game = NewTicTacToe();
  EXPECT_THAT(std::string(game.TryPlay({9, std::nullopt}).message()),
              HasSubstr("player_1: action is 9, expected 0 to 8"));
  EXPECT_THAT(std::string(game.TryPlay({-1, std::nullopt}).message()), HasSubstr("player_1: action is -1"));
  EXPECT_THAT(std::string(game.TryPlay({std::nullopt, 3}).message()),
              HasSubstr("player_1 did not act, and it is its turn"));
  game.Reset();
  game.Play({0, std::nullopt});
  EXPECT_THAT(std::string(game.TryPlay({1, std::nullopt}).message()), HasSubstr("player_2 did not act"));
  game.Reset();
  EXPECT_EQ(game.Mask(0), "111111111");
}

/// The rows of a board, from the top, of one plane.
std::string Plane(const std::string& row, size_t plane) {
  std::string text;
  for (size_t place = 0; place < 42; ++place) {
    text += row[2 * place + plane];
    if (place % 7 == 6 && place < 41) text += '/';
  }
  return text;
}

TEST(ConnectFourTest, EveryRowOfAGame) {
  GameTable game = NewConnectFour();
  EXPECT_EQ(game.env().spec().possible_agents[0].id.value(), "player_0");
  EXPECT_EQ(game.env().spec().possible_agents[1].id.value(), "player_1");
  EXPECT_EQ(game.env().spec().max_episode_steps, 42);
  const std::string empty = "0000000/0000000/0000000/0000000/0000000/0000000";
  EXPECT_EQ(Plane(game.Row(0), 0), empty);
  EXPECT_EQ(Plane(game.Row(0), 1), empty);
  EXPECT_EQ(game.Mask(0), "1111111");
  EXPECT_FALSE(game.Observed(1));
  game.Play({3, std::nullopt});
  EXPECT_FALSE(game.Observed(0));
  EXPECT_EQ(Plane(game.Row(1), 0), empty);
  EXPECT_EQ(Plane(game.Row(1), 1), "0000000/0000000/0000000/0000000/0000000/0001000");
  game.Play({std::nullopt, 3});
  EXPECT_EQ(Plane(game.Row(0), 0), "0000000/0000000/0000000/0000000/0000000/0001000");
  EXPECT_EQ(Plane(game.Row(0), 1), "0000000/0000000/0000000/0000000/0001000/0000000");
  game.Play({0, std::nullopt});
  game.Play({std::nullopt, 6});
  game.Play({1, std::nullopt});
  game.Play({std::nullopt, 6});
  EXPECT_FALSE(game.Over());
  game.Play({2, std::nullopt});  // the bottom row, 0 to 3
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(1, -1));
  EXPECT_EQ(Plane(game.Row(0), 0), "0000000/0000000/0000000/0000000/0000000/1111000");
  EXPECT_EQ(Plane(game.Row(0), 1), "0000000/0000000/0000000/0000000/0001001/0000001");
  EXPECT_EQ(Plane(game.Row(1), 0), Plane(game.Row(0), 1));
  EXPECT_EQ(Plane(game.Row(1), 1), Plane(game.Row(0), 0));
  EXPECT_EQ(game.Mask(0), "0000000");
  EXPECT_EQ(game.Mask(1), "0000000");
}

TEST(ConnectFourTest, LinesInEveryDirection) {
  GameTable game = NewConnectFour();
  game.PlayInTurn({2, 6, 2, 6, 2, 6, 5, 6});  // up, of the second player
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(-1, 1));
  game.Reset();
  game.PlayInTurn({0, 1, 1, 2, 2, 3, 2, 3, 3, 6});  // to the right and up
  EXPECT_FALSE(game.Over());
  game.Play({3, std::nullopt});
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(1, -1));
  game.Reset();
  game.PlayInTurn({6, 5, 5, 4, 4, 3, 4, 3, 3, 0});  // to the left and up
  EXPECT_FALSE(game.Over());
  game.Play({3, std::nullopt});
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(1, -1));
}

TEST(ConnectFourTest, NoLineGoesOnInTheNextColumn) {
  // Three on top of column 0 and one at the bottom of column 1 are not four.
  GameTable game = NewConnectFour();
  game.PlayInTurn({1, 0, 6, 0, 5, 0, 0, 3, 0, 3, 0, 2});
  EXPECT_FALSE(game.Over());
  EXPECT_EQ(game.Mask(0), "0111111") << "column 0 is full";
  EXPECT_EQ(Plane(game.Row(0), 0), "1000000/1000000/1000000/0000000/0000000/0100011");
}

TEST(ConnectFourTest, AFullBoardIsADrawAndAFullColumnLoses) {
  GameTable game = NewConnectFour();
  // Columns of two by two, shifted so that nothing makes four.
  game.PlayInTurn({0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 2, 3, 2, 3, 3, 2, 3, 2, 2,
                   3, 2, 3, 4, 5, 4, 5, 5, 4, 5, 4, 4, 5, 4, 5, 6, 6, 6, 6, 6});
  EXPECT_FALSE(game.Over());
  EXPECT_EQ(game.Mask(1), "0000001");
  game.Play({std::nullopt, 6});
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(0, 0));
  game.Reset();
  game.PlayInTurn({0, 0, 0, 0, 0, 0, 0});
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(-1, 0));
}

}  // namespace
}  // namespace troupe::envs
