// Games of PettingZoo and every history of OpenSpiel's Kuhn poker must come out of the native games. record_games.py
// made the rows.

#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lib/env/slot_buffers.h"
#include "lib/envs/games/connect_four.h"
#include "lib/envs/games/kuhn_poker.h"
#include "lib/envs/games/tic_tac_toe.h"
#include <nlohmann/json.hpp>

namespace troupe::envs {
namespace {

using nlohmann::json;

json ReadRecord() {
  std::ifstream file(std::string(TROUPE_SOURCE_DIR) + "/tests/conformance/traces/games.json");
  return json::parse(file);
}

template <typename Row>
std::string Text(const Row& row) {
  std::string text;
  for (const auto value : row) text += value == 0 ? '0' : value == 1 ? '1' : '?';
  return text;
}

/// Plays a recorded game; every row must be as recorded.
void ExpectSame(env::MultiAgentEnv& env, const json& game) {
  env::SlotBuffers buffers(env.spec(), 1);
  ASSERT_TRUE(env.Reset({}, buffers.BeginStep(0)).ok());
  const size_t moves = game.at("actions").size();
  for (size_t t = 0; t < moves; ++t) {
    const auto player = static_cast<int32_t>(t % 2);
    ASSERT_TRUE(buffers.ready(0, player)) << "move " << t;
    ASSERT_FALSE(buffers.observed(0, 1 - player)) << "move " << t;
    EXPECT_EQ(Text(buffers.observation(0, player)), game.at("rows").at(t).get<std::string>()) << "move " << t;
    if (game.contains("masks")) {
      EXPECT_EQ(Text(buffers.action_mask(0, player)), game.at("masks").at(t).get<std::string>()) << "move " << t;
    }
    EXPECT_FALSE(buffers.all_done(0)) << "move " << t;
    for (int32_t slot = 0; slot < 2; ++slot) EXPECT_EQ(buffers.reward(0, slot), 0) << "move " << t;
    const space::ActionWord word{.i32 = game.at("actions").at(t).get<int32_t>()};
    std::array<const space::ActionWord*, 2> actions{};
    actions[static_cast<size_t>(player)] = &word;
    ASSERT_TRUE(env.Step(actions, buffers.BeginStep(0)).ok());
  }
  EXPECT_TRUE(buffers.all_terminated(0));
  for (int32_t slot = 0; slot < 2; ++slot) {
    const auto index = static_cast<size_t>(slot);
    ASSERT_TRUE(buffers.observed(0, slot));
    EXPECT_EQ(Text(buffers.observation(0, slot)), game.at("final").at(index).get<std::string>());
    EXPECT_EQ(buffers.reward(0, slot), game.at("rewards").at(index).get<float>());
  }
}

void ExpectSameGames(env::MultiAgentEnv& env, const json& record) {
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(env.spec().possible_agents[i].id.value(), record.at("agents").at(i).get<std::string>());
  }
  ASSERT_GE(record.at("games").size(), 22u);
  ASSERT_EQ(record.at("illegal").size(), 2u);
  std::array<int, 3> outcomes{};
  for (size_t i = 0; i < record.at("games").size(); ++i) {
    SCOPED_TRACE(i);
    const json& game = record.at("games").at(i);
    ExpectSame(env, game);
    ++outcomes[static_cast<size_t>(1 + game.at("rewards").at(0).get<int>())];
  }
  for (const int count : outcomes) EXPECT_GT(count, 0) << "wins of both, and a draw";
}

TEST(GamesParityTest, TicTacToeEqualsPettingZoo) {
  TicTacToe game;
  ExpectSameGames(game, ReadRecord().at("tic_tac_toe"));
}

TEST(GamesParityTest, ConnectFourEqualsPettingZoo) {
  ConnectFour game;
  ExpectSameGames(game, ReadRecord().at("connect_four"));
}

TEST(GamesParityTest, EveryHistoryOfKuhnPokerEqualsOpenSpiel) {
  const json histories = ReadRecord().at("kuhn_poker");
  ASSERT_EQ(histories.size(), 30u);  // six deals, five ways to play
  for (const json& history : histories) {
    SCOPED_TRACE(history.dump());
    KuhnPoker game(KuhnPoker::Deal{history.at("deal").at(0).get<int>(), history.at("deal").at(1).get<int>()});
    ExpectSame(game, history);
  }
}

}  // namespace
}  // namespace troupe::envs
