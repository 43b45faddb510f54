#include "lib/envs/catch/catch.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/testing/played.h"

namespace troupe::envs {
namespace {

using ::testing::HasSubstr;

using Played = env::testing::Played<Catch>;

TEST(CatchTest, AnEpisodeByHand) {
  // A board of 3 x 3 cells of 2 x 2 pixels.
  Played game({.num_agents = 1, .size = 6, .cells = 3});
  EXPECT_EQ(game.env.spec().max_episode_steps, 2);
  EXPECT_EQ(game.env.spec().possible_agents[0].observation_space.ToString(), "Box(0, 255, [6, 6, 1], uint8)");
  uint32_t episode = 0;
  for (game.Reset(); game.env.balls()[0] != 0;) game.Reset(++episode);
  EXPECT_EQ(game.Image(0), (std::vector<int>{255, 255, 0,   0,   0, 0,  //
                                             255, 255, 0,   0,   0, 0,  //
                                             0,   0,   0,   0,   0, 0,  //
                                             0,   0,   0,   0,   0, 0,  //
                                             0,   0,   128, 128, 0, 0,  //
                                             0,   0,   128, 128, 0, 0}));
  ASSERT_TRUE(game.Step({1}).ok());
  EXPECT_EQ(game.buffers.reward(0, 0), 0.0f);
  EXPECT_FALSE(game.buffers.all_done(0));
  EXPECT_EQ(game.Image(0)[2 * 6], 255) << "a row further down";
  ASSERT_TRUE(game.Step({0}).ok());
  EXPECT_EQ(game.buffers.reward(0, 0), 1.0f);
  EXPECT_TRUE(game.buffers.all_terminated(0));
  EXPECT_EQ(game.Image(0)[5 * 6 + 1], 255) << "the ball is drawn over the paddle";
  const std::vector<int> last = game.Image(0);
  EXPECT_EQ(std::count(last.begin(), last.end(), 128), 0);
}

TEST(CatchTest, WhoMissesLosesAndEdgesHold) {
  Played game({.num_agents = 2, .size = 10, .cells = 5});
  int misses = 0;
  for (uint32_t episode = 0; episode < 10; ++episode) {
    game.Reset(episode);
    for (int step = 0; step < 4; ++step) {
      ASSERT_FALSE(game.buffers.all_done(0));
      ASSERT_TRUE(game.Step({0, 2}).ok());
    }
    EXPECT_EQ(game.env.paddles()[0], 0);
    EXPECT_EQ(game.env.paddles()[1], 4);
    for (int32_t slot = 0; slot < 2; ++slot) {
      const auto at = static_cast<size_t>(slot);
      EXPECT_EQ(game.buffers.reward(0, slot), game.env.paddles()[at] == game.env.balls()[at] ? 1.0f : -1.0f);
      misses += game.buffers.reward(0, slot) == -1.0f ? 1 : 0;
    }
    EXPECT_TRUE(game.buffers.all_terminated(0));
  }
  EXPECT_GT(misses, 5) << "of twenty, of which one in five is caught by chance";
}

TEST(CatchTest, WhoeverFollowsTheBallCatchesEveryOne) {
  Played game({.num_agents = 3});
  for (uint32_t episode = 0; episode < 200; ++episode) {
    game.Reset(episode);
    while (!game.buffers.all_done(0)) {
      std::vector<int32_t> moves;
      for (size_t i = 0; i < 3; ++i) {
        const int64_t way = game.env.balls()[i] - game.env.paddles()[i];
        moves.push_back(way < 0 ? 0 : way == 0 ? 1 : 2);
      }
      ASSERT_TRUE(game.Step(moves).ok());
    }
    for (int32_t slot = 0; slot < 3; ++slot) ASSERT_EQ(game.buffers.reward(0, slot), 1.0f) << episode;
  }
}

TEST(CatchTest, BallsAreEquallyLikelyAndEachAgentsOwn) {
  Played game({.num_agents = 2, .size = 4, .cells = 4});
  Played alone({.num_agents = 1, .size = 4, .cells = 4});
  std::map<int64_t, int> counts;
  int equal = 0;
  for (uint32_t episode = 0; episode < 4000; ++episode) {
    game.Reset(episode);
    alone.Reset(episode);
    ++counts[game.env.balls()[1]];
    equal += game.env.balls()[0] == game.env.balls()[1] ? 1 : 0;
    ASSERT_EQ(alone.env.balls()[0], game.env.balls()[0]) << "whoever else there is";
  }
  ASSERT_EQ(counts.size(), 4u);
  // Five standard deviations of 4000 draws.
  for (const auto& [column, count] : counts) EXPECT_NEAR(count, 1000, 140) << column;
  EXPECT_NEAR(equal, 1000, 140);
}

TEST(CatchTest, RefusesBadArgumentsAndActions) {
  const auto error = [](env::ArgMap args) {
    return std::string(Catch::Make(env::EnvArgs(std::move(args))).status().message());
  };
  EXPECT_THAT(error({{"num_agents", int64_t{0}}}), HasSubstr("argument num_agents is 0"));
  EXPECT_THAT(error({{"size", int64_t{1}}}), HasSubstr("argument size is 1"));
  EXPECT_THAT(error({{"cells", int64_t{1}}}), HasSubstr("argument cells is 1"));
  EXPECT_THAT(error({{"size", int64_t{43}}}), HasSubstr("argument size is 43, expected a multiple of cells, 14"));
  EXPECT_THAT(error({{"cell", int64_t{2}}}), HasSubstr("did you mean 'cells'?"));
  Played game({.num_agents = 2});
  game.Reset();
  EXPECT_THAT(std::string(game.Step({0, 3}).message()), HasSubstr("agent_1: action is 3, expected 0 to 2"));
  game.Reset();
  EXPECT_THAT(std::string(game.Step({-1, 0}).message()), HasSubstr("agent_0: action is -1"));
  const std::vector<const space::ActionWord*> nobody = {nullptr, nullptr};
  EXPECT_THAT(std::string(game.env.Step(nobody, game.buffers.BeginStep(0)).message()),
              HasSubstr("agent_0 did not act"));
}

}  // namespace
}  // namespace troupe::envs
