#include "lib/envs/games/kuhn_poker.h"

#include <map>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envs/games/testing/game_table.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kPass = KuhnPoker::kPass;
constexpr int32_t kBet = KuhnPoker::kBet;

GameTable Dealt(int32_t first, int32_t second) {
  return GameTable(std::make_unique<KuhnPoker>(KuhnPoker::Deal{first, second}));
}

TEST(KuhnPokerTest, EveryRowOfAGame) {
  GameTable game = Dealt(2, 0);  // king against jack
  // Player (2), card (3), pass or bet for each of three actions (6).
  EXPECT_EQ(game.Row(0),
            "10"
            "001"
            "000000");
  EXPECT_FALSE(game.Observed(1));
  game.Play({kPass, std::nullopt});
  EXPECT_EQ(game.Row(1),
            "01"
            "100"
            "100000");
  EXPECT_FALSE(game.Observed(0));
  game.Play({std::nullopt, kBet});
  EXPECT_EQ(game.Row(0),
            "10"
            "001"
            "100100");
  EXPECT_FALSE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(0, 0));
  game.Play({kBet, std::nullopt});
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(2, -2));
  EXPECT_EQ(game.Row(0),
            "10"
            "001"
            "100101");
  EXPECT_EQ(game.Row(1),
            "01"
            "100"
            "100101");
}

TEST(KuhnPokerTest, WhatEachEndPays) {
  GameTable weak = Dealt(0, 1);
  weak.PlayInTurn({kPass, kPass});
  EXPECT_TRUE(weak.Over());
  EXPECT_THAT(weak.Rewards(), ElementsAre(-1, 1)) << "the higher card wins the antes";
  weak.Reset();
  weak.PlayInTurn({kBet, kPass});
  EXPECT_THAT(weak.Rewards(), ElementsAre(1, -1)) << "who does not answer a bet loses, also with the higher card";
  weak.Reset();
  weak.PlayInTurn({kBet, kBet});
  EXPECT_THAT(weak.Rewards(), ElementsAre(-2, 2));
  weak.Reset();
  weak.PlayInTurn({kPass, kBet, kPass});
  EXPECT_THAT(weak.Rewards(), ElementsAre(-1, 1));
  GameTable strong = Dealt(1, 0);
  strong.PlayInTurn({kPass, kBet, kPass});
  EXPECT_THAT(strong.Rewards(), ElementsAre(-1, 1)) << "also with the higher card";
  strong.Reset();
  strong.PlayInTurn({kPass, kPass});
  EXPECT_THAT(strong.Rewards(), ElementsAre(1, -1));
}

TEST(KuhnPokerTest, EverySeedDealsAndAllDealsAreEquallyLikely) {
  GameTable game(std::make_unique<KuhnPoker>());
  std::map<std::string, int> deals;
  constexpr int kEpisodes = 6000;
  for (uint32_t episode = 0; episode < kEpisodes; ++episode) {
    game.Reset({.seed = 7, .env_id = base::EnvId(3), .episode = episode});
    const std::string first = game.Row(0).substr(2, 3);
    game.Play({kPass, std::nullopt});
    ++deals[first + game.Row(1).substr(2, 3)];
  }
  ASSERT_EQ(deals.size(), 6u) << "never the same card twice";
  for (const auto& [deal, count] : deals) EXPECT_NEAR(count, kEpisodes / 6, 150) << deal;  // five deviations
  game.Reset({.seed = 7, .env_id = base::EnvId(3), .episode = 0});
  const std::string row = game.Row(0);
  game.Reset({.seed = 7, .env_id = base::EnvId(3), .episode = 0});
  EXPECT_EQ(game.Row(0), row);
}

}  // namespace
}  // namespace troupe::envs
