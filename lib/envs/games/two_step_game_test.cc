#include "lib/envs/games/two_step_game.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envs/games/testing/game_table.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GameTable NewGame() { return GameTable(std::make_unique<TwoStepGame>()); }

std::vector<float> State(const GameTable& game) {
  const absl::Span<const float> state = game.buffers().state(0, 0);
  return {state.begin(), state.end()};
}
std::vector<float> Row(const GameTable& game, int32_t slot) {
  const absl::Span<const float> row = game.buffers().observation(0, slot);
  return {row.begin(), row.end()};
}

TEST(TwoStepGameTest, EveryRowOfBothGames) {
  GameTable game = NewGame();
  EXPECT_EQ(game.env().spec().possible_agents[0].id.value(), "agent_1");
  EXPECT_EQ(game.env().spec().max_episode_steps, 2);
  EXPECT_THAT(Row(game, 0), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(Row(game, 1), ElementsAre(1, 0, 0, 2));
  EXPECT_THAT(State(game), ElementsAre(1, 0, 0));
  game.Play({0, 1});
  EXPECT_THAT(Row(game, 0), ElementsAre(0, 1, 0, 1)) << "agent_1 chooses, agent_2 does not";
  EXPECT_THAT(Row(game, 1), ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(State(game), ElementsAre(0, 1, 0));
  EXPECT_THAT(game.Rewards(), ElementsAre(0, 0));
  EXPECT_FALSE(game.Over());
  game.Play({1, 0});
  EXPECT_TRUE(game.Over());
  EXPECT_THAT(game.Rewards(), ElementsAre(3.5f, 3.5f));
  EXPECT_THAT(Row(game, 1), ElementsAre(0, 1, 0, 2));
  game.Reset();
  game.Play({1, 0});
  EXPECT_THAT(Row(game, 0), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(State(game), ElementsAre(0, 0, 1));
}

TEST(TwoStepGameTest, PaysThePapersTables) {
  const float sums[2][2][2] = {{{7, 7}, {7, 7}}, {{0, 1}, {1, 8}}};
  for (int32_t choice = 0; choice < 2; ++choice) {
    for (int32_t first = 0; first < 2; ++first) {
      for (int32_t second = 0; second < 2; ++second) {
        GameTable game = NewGame();
        game.Play({choice, second});
        game.Play({first, second});
        const float sum = sums[choice][first][second];
        EXPECT_THAT(game.Rewards(), ElementsAre(sum / 2, sum / 2)) << choice << first << second;
        EXPECT_TRUE(game.Over());
      }
    }
  }
}

TEST(TwoStepGameTest, RefusesBadActions) {
  GameTable game = NewGame();
  EXPECT_THAT(std::string(game.TryPlay({0, 2}).message()), HasSubstr("agent_2: action is 2, expected 0 or 1"));
  EXPECT_THAT(std::string(game.TryPlay({std::nullopt, 0}).message()), HasSubstr("agent_1 did not act"));
}

}  // namespace
}  // namespace troupe::envs
