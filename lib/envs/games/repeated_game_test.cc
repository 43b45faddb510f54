#include "lib/envs/games/repeated_game.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envs/games/testing/game_table.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Args = env::ArgMap;
using Maker = absl::StatusOr<std::unique_ptr<RepeatedGame>>(env::EnvArgs args);

GameTable New(Maker* make, Args args = {}) { return GameTable(*make(env::EnvArgs(std::move(args)))); }
std::string Error(Maker* make, Args args) {
  return std::string(make(env::EnvArgs(std::move(args))).status().message());
}

env::ArgValue List(std::initializer_list<env::ArgValue> values) {
  return env::ArgValue(std::in_place_type<env::ArgList>, values);
}

TEST(RockPaperScissorsTest, PaysTheWinnerOfEveryPairOfHands) {
  // Rock 0, paper 1, scissors 2: paper beats rock, scissors paper, rock scissors.
  const float first_gets[3][3] = {{0, -1, 1}, {1, 0, -1}, {-1, 1, 0}};
  GameTable game = New(&MakeRockPaperScissors);
  for (int32_t first = 0; first < 3; ++first) {
    for (int32_t second = 0; second < 3; ++second) {
      game.Play({first, second});
      const float gets = first_gets[first][second];
      EXPECT_THAT(game.Rewards(), ElementsAre(gets, -gets)) << first << " against " << second;
    }
  }
}

TEST(RockPaperScissorsTest, BothSeeTheLastRoundFromTheirSide) {
  GameTable game = New(&MakeRockPaperScissors, {{"rounds", int64_t{3}}});
  for (int32_t slot = 0; slot < 2; ++slot) EXPECT_EQ(game.Row(slot), "0000000");
  game.Play({1, 2});
  EXPECT_EQ(game.Row(0), "0100011");
  EXPECT_EQ(game.Row(1), "0010101");
  game.Play({0, 0});
  EXPECT_EQ(game.Row(0), "1001001");
  game.Reset();
  EXPECT_EQ(game.Row(0), "0000000") << "a new game knows nothing of the old one";
}

TEST(RockPaperScissorsTest, EndsAfterItsRoundsWithALastObservation) {
  GameTable game = New(&MakeRockPaperScissors, {{"rounds", int64_t{2}}});
  game.Play({0, 1});
  EXPECT_FALSE(game.Over());
  game.Play({2, 1});
  EXPECT_TRUE(game.Over());
  EXPECT_EQ(game.Row(0), "0010101");
  const GameTable standard = New(&MakeRockPaperScissors);
  EXPECT_EQ(standard.buffers().spec().max_episode_steps, 10);
  EXPECT_EQ(standard.buffers().spec().name, "rock_paper_scissors");
  EXPECT_EQ(standard.buffers().spec().possible_agents[1].id.value(), "player_1");
  EXPECT_EQ(standard.buffers().spec().possible_agents[1].observation_space, *space::Space::Box(0, 1, {7}));
}

TEST(RockPaperScissorsTest, RefusesBadArgumentsAndActions) {
  EXPECT_THAT(Error(&MakeRockPaperScissors, {{"rounds", int64_t{0}}}),
              HasSubstr("argument rounds is 0, expected an integer in [1, 1000000]"));
  EXPECT_THAT(Error(&MakeRockPaperScissors, {{"rounds", int64_t{1000001}}}), HasSubstr("argument rounds is 1000001"));
  EXPECT_THAT(Error(&MakeRockPaperScissors, {{"round", int64_t{2}}}), HasSubstr("did you mean 'rounds'?"));
  GameTable game = New(&MakeRockPaperScissors);
  EXPECT_THAT(std::string(game.TryPlay({0, 3}).message()), HasSubstr("player_1: action is 3, expected 0 to 2"));
  EXPECT_THAT(std::string(game.TryPlay({-1, 0}).message()), HasSubstr("player_0: action is -1"));
  EXPECT_THAT(std::string(game.TryPlay({0, std::nullopt}).message()), HasSubstr("player_1 did not act"));
}

TEST(MatchingPenniesTest, OneWantsThemEqual) {
  GameTable game = New(&MakeMatchingPennies, {{"rounds", int64_t{4}}});
  EXPECT_EQ(game.Row(0), "00000");
  game.Play({0, 0});
  EXPECT_THAT(game.Rewards(), ElementsAre(1, -1));
  EXPECT_EQ(game.Row(0), "10101");
  game.Play({0, 1});
  EXPECT_THAT(game.Rewards(), ElementsAre(-1, 1));
  EXPECT_EQ(game.Row(0), "10011");
  EXPECT_EQ(game.Row(1), "01101");
  game.Play({1, 0});
  EXPECT_THAT(game.Rewards(), ElementsAre(-1, 1));
  EXPECT_FALSE(game.Over());
  game.Play({1, 1});
  EXPECT_THAT(game.Rewards(), ElementsAre(1, -1));
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(Error(&MakeMatchingPennies, {{"payoffs", List({})}}), HasSubstr("has no argument 'payoffs'"));
}

TEST(MatrixGameTest, CommonPayoffsAndTheClimbingGame) {
  GameTable climbing = New(&MakeMatrixGame);
  climbing.Play({0, 0});
  EXPECT_THAT(climbing.Rewards(), ElementsAre(11, 11));
  climbing.Play({1, 0});
  EXPECT_THAT(climbing.Rewards(), ElementsAre(-30, -30));
  climbing.Play({1, 2});
  EXPECT_THAT(climbing.Rewards(), ElementsAre(6, 6));
  EXPECT_EQ(climbing.buffers().spec().max_episode_steps, 10);
  GameTable game = New(&MakeMatrixGame,
                       {{"payoffs", List({List({1.5, int64_t{2}, -3.0}), List({int64_t{4}, int64_t{5}, int64_t{6}})})},
                        {"rounds", int64_t{1}}});
  EXPECT_EQ(game.buffers().spec().possible_agents[0].action_space, *space::Space::Discrete(2));
  EXPECT_EQ(game.buffers().spec().possible_agents[1].action_space, *space::Space::Discrete(3));
  game.Play({0, 2});
  EXPECT_THAT(game.Rewards(), ElementsAre(-3, -3));
  EXPECT_EQ(game.Row(0), "100011") << "own of 2, the other's of 3, and that there was a round";
  EXPECT_EQ(game.Row(1), "001101");
  EXPECT_TRUE(game.Over());
}

TEST(MatrixGameTest, ZeroSumAndPerPlayerPayoffs) {
  GameTable zero_sum = New(
      &MakeMatrixGame, {{"payoffs", List({List({1.0, -2.0}), List({0.0, 3.0})})}, {"kind", std::string("zero_sum")}});
  zero_sum.Play({0, 1});
  EXPECT_THAT(zero_sum.Rewards(), ElementsAre(-2, 2));
  zero_sum.Play({1, 1});
  EXPECT_THAT(zero_sum.Rewards(), ElementsAre(3, -3));
  // The prisoner's dilemma: 0 stays silent, 1 talks.
  GameTable dilemma = New(&MakeMatrixGame, {{"payoffs", List({List({List({-1.0, -3.0}), List({0.0, -2.0})}),
                                                              List({List({-1.0, 0.0}), List({-3.0, -2.0})})})},
                                            {"kind", std::string("per_player")}});
  dilemma.Play({0, 1});
  EXPECT_THAT(dilemma.Rewards(), ElementsAre(-3, 0));
  dilemma.Play({1, 0});
  EXPECT_THAT(dilemma.Rewards(), ElementsAre(0, -3));
  dilemma.Play({1, 1});
  EXPECT_THAT(dilemma.Rewards(), ElementsAre(-2, -2));
}

TEST(MatrixGameTest, ThreePlayersSeeEachOtherRoundTheTable) {
  // 100, 10 and 1 for the actions of players 0, 1 and 2, who have 2, 1 and 3.
  const env::ArgValue payoffs = List({List({List({0.0, 1.0, 2.0})}), List({List({100.0, 101.0, 102.0})})});
  GameTable game = New(&MakeMatrixGame, {{"payoffs", payoffs}});
  game.Play({1, 0, 2});
  EXPECT_THAT(game.Rewards(), ElementsAre(102, 102, 102));
  EXPECT_EQ(game.Row(0),
            "01"
            "1"
            "001"
            "1");
  EXPECT_EQ(game.Row(1),
            "1"
            "001"
            "01"
            "1");
  EXPECT_EQ(game.Row(2),
            "001"
            "01"
            "1"
            "1");
}

TEST(MatrixGameTest, SaysWhatIsWrongWithATable) {
  const auto error = [](env::ArgValue payoffs, std::string kind) {
    return Error(&MakeMatrixGame, {{"payoffs", std::move(payoffs)}, {"kind", std::move(kind)}});
  };
  EXPECT_THAT(error(List({1.0, 2.0}), "common"), HasSubstr("argument payoffs is nested 1 deep, expected 2 to 15"));
  EXPECT_THAT(error(List({List({List({1.0})})}), "zero_sum"),
              HasSubstr("is nested 3 deep, expected 2: a list for each action"));
  EXPECT_THAT(error(List({List({1.0})}), "per_player"), HasSubstr("is nested 2 deep, expected 3 to 16"));
  EXPECT_THAT(error(List({List({List({1.0})})}), "per_player"),
              HasSubstr("argument payoffs has 1 tables of 2 dimensions, expected a table and a dimension for each"));
  EXPECT_THAT(error(List({List({1.0, 2.0}), List({1.0})}), "common"),
              HasSubstr("argument payoffs[1] is a list of 1, expected a list of 2 numbers"));
  EXPECT_THAT(error(List({List({1.0, 2e6})}), "common"),
              HasSubstr("argument payoffs[0][1] is 2e+06, expected a number"));
  EXPECT_THAT(error(List({List({1.0})}), "commons"),
              HasSubstr("argument kind is 'commons', expected common, zero_sum or per_player"));
  EXPECT_THAT(Error(&MakeMatrixGame, {{"kind", std::string("zero_sum")}}),
              HasSubstr("argument kind says how to read payoffs, expected them, too"));
  env::ArgValue deep = 1.0;
  for (int i = 0; i < 16; ++i) deep = List({deep});
  EXPECT_THAT(error(deep, "common"), HasSubstr("is nested 16 deep, expected 2 to 15"));
  const env::ArgValue wide(std::in_place_type<env::ArgList>, 1025, List({1.0}));
  EXPECT_THAT(error(wide, "common"), HasSubstr("has 1025 actions for player 0, expected at most 1024"));
}

}  // namespace
}  // namespace troupe::envs
