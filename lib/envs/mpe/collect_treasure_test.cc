#include <cmath>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envs/mpe/scenarios.h"
#include "lib/envs/mpe/testing/play.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNan;

/// Two collectors, two deposits, one treasure; nobody near anybody.
WorldState Apart() {
  WorldState state;
  state.agents = {{.position = {0, 0}}, {.position = {0, 0.5}}, {.position = {0.5, 0}}, {.position = {-0.5, 0}}};
  state.landmarks = {{.position = {0, -0.5}, .type = 1}};
  return state;
}

Args Few() { return {{"num_collectors", int64_t{2}}, {"num_treasures", int64_t{1}}, {"benchmark_data", true}}; }

constexpr int32_t kDeposit0 = 2;
constexpr int32_t kDeposit1 = 3;

TEST(CollectTreasureTest, PicksUpCarriesDeliversAndRespawns) {
  Play play("mpe/collect_treasure", Few());
  WorldState state = Apart();
  state.landmarks[0].position[1] = -0.07;  // touched: 0.05 + 0.025
  ASSERT_TRUE(play.ResetTo(state).ok());
  EXPECT_THAT(play.obs(0).subspan(4, 2), ElementsAre(0, 0));
  ASSERT_TRUE(play.Step().ok());
  EXPECT_FLOAT_EQ(play.reward(0), 5 - 0.1f * 0.5f);                            // now towards the second deposit
  EXPECT_FLOAT_EQ(play.reward(1), 5);                                          // no treasure is left to go to
  EXPECT_FLOAT_EQ(play.reward(kDeposit1), 5 - 0.1f * 0.5f);                    // towards the carrier
  EXPECT_NEAR(play.reward(kDeposit0), 5 - 0.1 * std::hypot(0.5, 0.25), 1e-6);  // towards the middle of collectors
  EXPECT_THAT(play.obs(0).subspan(4, 2), ElementsAre(0, 1));                   // holds type 1
  const absl::Span<const float> row = play.obs(0);
  EXPECT_THAT(row.subspan(row.size() - 4), ElementsAre(0, 0, 0, 0));  // the treasure is gone
  EXPECT_THAT(play.buffers->infos(0, 0), ElementsAre(1, IsNan(), 0));
  EXPECT_THAT(play.buffers->infos(0, kDeposit1), ElementsAre(IsNan(), 1, 0));
  EXPECT_FALSE(play.env->has_drawn());

  ASSERT_TRUE(play.Step().ok());  // it is back, somewhere
  EXPECT_TRUE(play.env->has_drawn());
  EXPECT_THAT(play.buffers->infos(0, 0), ElementsAre(1, IsNan(), 1));
  EXPECT_LT(play.reward(0), 0);

  state = Apart();
  state.agents[0].holding = 1;
  state.agents[kDeposit1].position[0] = -0.12;  // touched: 0.05 + 0.075
  ASSERT_TRUE(play.ResetTo(state).ok());
  EXPECT_FALSE(play.env->has_drawn());
  ASSERT_TRUE(play.Step().ok());
  EXPECT_FLOAT_EQ(play.reward(0), 5 - 0.1f * 0.5f);  // delivered, and on to the treasure
  EXPECT_THAT(play.buffers->infos(0, 0), ElementsAre(-1, IsNan(), 1));

  state.agents[0].holding = 0;  // not what this deposit takes
  ASSERT_TRUE(play.ResetTo(state).ok());
  ASSERT_TRUE(play.Step().ok());
  EXPECT_FLOAT_EQ(play.reward(0), -0.1f * 0.5f);
  EXPECT_THAT(play.buffers->infos(0, kDeposit0), ElementsAre(IsNan(), 1, 1));
}

TEST(CollectTreasureTest, OneCollectorTakesOneTreasureAndOverlapCosts) {
  Play play("mpe/collect_treasure", Few());
  WorldState state = Apart();
  state.agents[1].position[1] = 0.06;  // touches the first collector
  state.landmarks[0].position[1] = 0.03;
  ASSERT_TRUE(play.ResetTo(state).ok());
  ASSERT_TRUE(play.Step().ok());
  EXPECT_FLOAT_EQ(play.reward(0), 5 - 5 - 0.1f * 0.5f);
  EXPECT_FLOAT_EQ(play.reward(1), 5 - 5);
  EXPECT_EQ(play.buffers->infos(0, 1)[0], -1);  // the first one in order got it
  EXPECT_EQ(play.obs(0)[2], 0);                 // and nobody was pushed
}

TEST(CollectTreasureTest, RespawnsOfARecordingComeInOrder) {
  Play play("mpe/collect_treasure", Few());
  WorldState state = Apart();
  state.landmarks[0].alive = false;
  state.respawns = {{.position = {0.01, 0}, .type = 0}, {.position = {0.25, 0.75}, .type = 1}};
  ASSERT_TRUE(play.ResetTo(state).ok());
  ASSERT_TRUE(play.Step().ok());  // comes back under the first collector
  EXPECT_EQ(play.buffers->infos(0, 0)[2], 1);
  ASSERT_TRUE(play.Step().ok());  // is taken
  EXPECT_EQ(play.buffers->infos(0, 0)[0], 0);
  ASSERT_TRUE(play.Step().ok());
  const absl::Span<const float> row = play.obs(0);
  EXPECT_THAT(row.subspan(row.size() - 4), ElementsAre(0.25f, 0.75f, 0, 1));
  EXPECT_FALSE(play.env->has_drawn());
}

/// Positions and types after a respawn: uniform, a function of the episode's seed, and not those of the reset.
TEST(CollectTreasureTest, RespawnsFollowTheSeed) {
  // One collector among many treasures: it touches some at the start now and then.
  const Args args = {{"num_collectors", int64_t{40}}, {"num_treasures", int64_t{40}}, {"num_deposits", int64_t{2}}};
  Play play("mpe/collect_treasure", args);
  const auto play_two = [&](uint32_t episode) {
    play.Reset({5, base::EnvId(0), episode});
    EXPECT_TRUE(play.Step().ok());
    EXPECT_TRUE(play.Step().ok());
    const absl::Span<const float> state = play.buffers->state(0, 0);
    return std::vector<float>(state.begin(), state.end());
  };
  EXPECT_EQ(play_two(1), play_two(1));
  EXPECT_NE(play_two(1), play_two(2));

  // A dead treasure, again and again: the first respawn of each episode after ResetTo is one fixed draw.
  Play few("mpe/collect_treasure", Few());
  WorldState state = Apart();
  state.landmarks[0].alive = false;
  ASSERT_TRUE(few.ResetTo(state).ok());
  ASSERT_TRUE(few.Step().ok());
  const std::vector<float> first(few.obs(0).begin(), few.obs(0).end());
  ASSERT_TRUE(few.ResetTo(state).ok());
  ASSERT_TRUE(few.Step().ok());
  EXPECT_EQ(std::vector<float>(few.obs(0).begin(), few.obs(0).end()), first);
}

TEST(CollectTreasureTest, RespawnsAreUniform) {
  // Everything is so small a world that the one collector finds something in many episodes; what it finds comes back.
  Play play("mpe/collect_treasure", {{"num_collectors", int64_t{1}},
                                     {"num_treasures", int64_t{1}},
                                     {"num_deposits", int64_t{2}},
                                     {"max_cycles", int64_t{1000000}}});
  int respawns = 0, ones = 0;
  double sum = 0, squares = 0, most = 0;
  for (uint32_t episode = 0; respawns < 600 && episode < 2000000; ++episode) {
    play.Reset({8, base::EnvId(0), episode});
    const absl::Span<const float> before = play.obs(0);
    const size_t place = before.size() - 4;
    if (std::hypot(before[place], before[place + 1]) >= 0.074) continue;  // not touched
    ASSERT_TRUE(play.Step().ok());
    ASSERT_TRUE(play.Step().ok());
    const absl::Span<const float> row = play.obs(0);
    ++respawns;
    ones += row[place + 3] == 1 ? 1 : 0;
    for (size_t axis = 0; axis < 2; ++axis) {
      const double x = row[axis] + row[place + axis];
      sum += x;
      squares += x * x;
      most = std::max(most, std::abs(x));
    }
  }
  ASSERT_EQ(respawns, 600);
  EXPECT_NEAR(ones, 300, 55);                           // standard error 12
  EXPECT_NEAR(sum / 1200, 0, 0.07);                     // 0.016
  EXPECT_NEAR(squares / 1200, 0.95 * 0.95 / 3, 0.035);  // 0.0078
  EXPECT_LE(most, 0.95 + 1e-6);
  EXPECT_GT(most, 0.93);
}

TEST(CollectTreasureTest, RefusesAWorldOfOtherTypes) {
  Play play("mpe/collect_treasure", Few());
  WorldState state = Apart();
  state.agents[1].name = "collector_1";
  state.agents[1].holding = 2;
  EXPECT_THAT(std::string(play.ResetTo(state).message()),
              HasSubstr("collector_1 has treasure type 2, expected one in [-1, 1]"));
  state.agents[1].holding = -1;
  state.landmarks[0].type = -1;
  EXPECT_THAT(std::string(play.ResetTo(state).message()), HasSubstr("treasure type -1, expected one in [0, 1]"));
}

}  // namespace
}  // namespace troupe::envs
