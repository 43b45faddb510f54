#include "lib/envs/memory/recall.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/testing/played.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Played = env::testing::Played<Recall>;

std::vector<float> CueRow(int32_t cue) {
  std::vector<float> row = {0, 0, 0, 1, 0};
  row[static_cast<size_t>(cue)] = 1;
  return row;
}

TEST(RecallTest, AnEpisodeByHand) {
  Played game({.num_agents = 2, .num_cues = 3, .delay = 2});
  EXPECT_EQ(game.env.spec().max_episode_steps, 4);
  EXPECT_EQ(game.env.spec().possible_agents[1].id.value(), "agent_1");
  // One whose agents have different cues, so that rows and answers cannot be exchanged.
  uint32_t episode = 0;
  for (game.Reset(); game.env.cues()[0] == game.env.cues()[1];) game.Reset(++episode);
  const int32_t first = game.env.cues()[0];
  const int32_t second = game.env.cues()[1];
  EXPECT_EQ(game.Row(0), CueRow(first));
  EXPECT_EQ(game.Row(1), CueRow(second));
  // The cue at once, which is not asked for yet, and two answers into nothing.
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(game.Step({first, second}).ok());
    EXPECT_FALSE(game.buffers.all_done(0));
    for (int32_t slot = 0; slot < 2; ++slot) {
      EXPECT_EQ(game.buffers.reward(0, slot), 0.0f);
      EXPECT_TRUE(game.buffers.ready(0, slot));
      EXPECT_THAT(game.Row(slot), ElementsAre(0, 0, 0, 0, step == 2 ? 1 : 0)) << step;
    }
  }
  ASSERT_TRUE(game.Step({first, first}).ok());
  EXPECT_EQ(game.buffers.reward(0, 0), 1.0f);
  EXPECT_EQ(game.buffers.reward(0, 1), 0.0f) << "the other's cue";
  EXPECT_TRUE(game.buffers.all_done(0));
  EXPECT_TRUE(game.buffers.all_terminated(0));
  EXPECT_THAT(game.Row(0), ElementsAre(0, 0, 0, 0, 0));
  // And the next one.
  game.Reset(episode + 1);
  EXPECT_EQ(game.Row(0), CueRow(game.env.cues()[0]));
}

TEST(RecallTest, WithoutADelayTheNextStepAsks) {
  Played game({.num_agents = 1, .num_cues = 3, .delay = 0});
  game.Reset();
  ASSERT_TRUE(game.Step({0}).ok());
  EXPECT_THAT(game.Row(0), ElementsAre(0, 0, 0, 0, 1));
  ASSERT_TRUE(game.Step({game.env.cues()[0]}).ok());
  EXPECT_EQ(game.buffers.reward(0, 0), 1.0f);
  EXPECT_TRUE(game.buffers.all_terminated(0));
}

TEST(RecallTest, CuesAreEquallyLikelyAndEachAgentsOwn) {
  Played game({.num_agents = 2, .num_cues = 4, .delay = 0});
  Played alone({.num_agents = 1, .num_cues = 4, .delay = 0});
  std::map<int32_t, int> counts;
  int equal = 0;
  for (uint32_t episode = 0; episode < 4000; ++episode) {
    game.Reset(episode);
    alone.Reset(episode);
    ++counts[game.env.cues()[1]];
    equal += game.env.cues()[0] == game.env.cues()[1] ? 1 : 0;
    ASSERT_EQ(alone.env.cues()[0], game.env.cues()[0]) << "whoever else there is";
  }
  ASSERT_EQ(counts.size(), 4u);
  // Five standard deviations of 4000 draws.
  for (const auto& [cue, count] : counts) EXPECT_NEAR(count, 1000, 140) << cue;
  EXPECT_NEAR(equal, 1000, 140);
}

TEST(RecallTest, DistractorsAreCuesThatAreNotTheAgentsOwn) {
  const auto shown = [](uint32_t episode, uint64_t seed) {
    Played game({.num_agents = 2, .num_cues = 4, .delay = 30, .distractors = true});
    game.Reset(episode, seed);
    EXPECT_EQ(game.Row(0)[4], 1.0f);
    std::vector<std::vector<float>> rows;
    for (int step = 0; step < 30; ++step) {
      EXPECT_TRUE(game.Step({0, 0}).ok());
      for (int32_t slot = 0; slot < 2; ++slot) {
        const std::vector<float> row = game.Row(slot);
        EXPECT_EQ(row[0] + row[1] + row[2] + row[3], 1.0f);
        EXPECT_THAT((std::vector<float>{row[4], row[5]}), ElementsAre(0, 0)) << "neither its own, nor asked for";
        rows.push_back(row);
      }
    }
    EXPECT_TRUE(game.Step({0, 0}).ok());
    EXPECT_THAT(game.Row(1), ElementsAre(0, 0, 0, 0, 0, 1));
    return rows;
  };
  const std::vector<std::vector<float>> rows = shown(5, 3);
  EXPECT_EQ(std::set<std::vector<float>>(rows.begin(), rows.end()).size(), 4u);
  EXPECT_EQ(shown(5, 3), rows) << "all randomness comes from the episode's seed";
  EXPECT_NE(shown(6, 3), rows);
  EXPECT_NE(shown(5, 4), rows);
  const auto of_agent = [&rows](size_t slot) {
    std::vector<std::vector<float>> own;
    for (size_t i = slot; i < rows.size(); i += 2) own.push_back(rows[i]);
    return own;
  };
  EXPECT_NE(of_agent(0), of_agent(1));
}

TEST(RecallTest, RefusesBadArgumentsAndActions) {
  const auto error = [](env::ArgMap args) {
    return std::string(Recall::Make(env::EnvArgs(std::move(args))).status().message());
  };
  EXPECT_THAT(error({{"num_agents", int64_t{0}}}), HasSubstr("argument num_agents is 0"));
  EXPECT_THAT(error({{"num_cues", int64_t{1}}}), HasSubstr("argument num_cues is 1"));
  EXPECT_THAT(error({{"delay", int64_t{-1}}}), HasSubstr("argument delay is -1"));
  EXPECT_THAT(error({{"distractors", int64_t{1}}}), HasSubstr("argument distractors is 1"));
  EXPECT_THAT(error({{"delays", int64_t{2}}}), HasSubstr("did you mean 'delay'?"));
  Played game({.num_agents = 2, .num_cues = 3, .delay = 2});
  game.Reset();
  EXPECT_THAT(std::string(game.Step({0, 3}).message()), HasSubstr("agent_1: action is 3, expected 0 to 2"));
  EXPECT_THAT(std::string(game.Step({-1, 0}).message()), HasSubstr("agent_0: action is -1"));
  const std::vector<const space::ActionWord*> nobody = {nullptr, nullptr};
  EXPECT_THAT(std::string(game.env.Step(nobody, game.buffers.BeginStep(0)).message()),
              HasSubstr("agent_0 did not act"));
}

}  // namespace
}  // namespace troupe::envs
