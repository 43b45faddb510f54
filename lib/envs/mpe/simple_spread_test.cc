#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envs/mpe/mpe_env.h"
#include "lib/envs/mpe/testing/play.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Agents and landmarks at given places.
WorldState Places(const std::vector<std::array<double, 2>>& agents,
                  const std::vector<std::array<double, 2>>& landmarks) {
  WorldState state;
  for (const auto& [x, y] : agents) state.agents.push_back({.position = {x, y}});
  for (const auto& [x, y] : landmarks) state.landmarks.push_back({.position = {x, y}});
  return state;
}

constexpr char kName[] = "mpe/simple_spread";

TEST(SimpleSpreadTest, SpecFollowsTheOptions) {
  const Play play(kName);
  const env::EnvSpec& plain = play.env->spec();
  EXPECT_TRUE(plain.Validate().ok());
  EXPECT_EQ(plain.num_agents(), 3);
  EXPECT_EQ(plain.possible_agents[2].id.value(), "agent_2");
  EXPECT_EQ(plain.possible_agents[0].observation_space.ToString(), "Box(-inf, inf, [18])");
  EXPECT_EQ(plain.possible_agents[0].action_space.ToString(), "Discrete(5)");
  EXPECT_EQ(plain.state_space.flat_size(), 54);
  EXPECT_EQ(plain.max_episode_steps, 25);
  EXPECT_TRUE(plain.info_columns.empty());

  const Play play_other(kName, {{"N", int64_t{4}},
                                {"continuous_actions", true},
                                {"benchmark_data", true},
                                {"num_agent_neighbors", int64_t{1}},
                                {"num_landmark_neighbors", int64_t{9}}});
  const env::EnvSpec& other = play_other.env->spec();
  EXPECT_EQ(other.possible_agents[0].observation_space.flat_size(), 4 + 2 * 9 + 4 * 1);
  EXPECT_EQ(other.possible_agents[0].action_space.ToString(), "Box(0, 1, [5])");
  EXPECT_EQ(other.info_columns.size(), 4u);
}

TEST(SimpleSpreadTest, ReadsArgumentsAsMpe2NamesThem) {
  const auto error = [](Args values) { return MakeError(kName, std::move(values)); };
  EXPECT_EQ(error({{"N", int64_t{2}},
                   {"local_ratio", int64_t{1}},
                   {"max_cycles", int64_t{9}},
                   {"continuous_actions", true},
                   {"render_mode", std::monostate()},
                   {"dynamic_rescaling", false},
                   {"benchmark_data", true},
                   {"curriculum", true},
                   {"curriculum_stage", int64_t{1}},
                   {"terminate_on_success", true},
                   {"num_agent_neighbors", int64_t{2}},
                   {"num_landmark_neighbors", std::monostate()}}),
            "");
  EXPECT_THAT(error({{"N", int64_t{0}}}), HasSubstr("argument N is 0"));
  EXPECT_THAT(error({{"local_ratio", 1.5}}), HasSubstr("argument local_ratio is 1.5, expected a number in [0, 1]"));
  EXPECT_THAT(error({{"max_cycles", int64_t{0}}}), HasSubstr("max_cycles"));
  EXPECT_THAT(error({{"num_agent_neighbors", int64_t{0}}}), HasSubstr("expected an integer in [1, 512] or null"));
  EXPECT_THAT(error({{"render_mode", std::string("human")}}), HasSubstr("troupe evaluate --video"));
  EXPECT_THAT(error({{"curriculum_stage", int64_t{1}}}), HasSubstr("without curriculum: true"));
  EXPECT_THAT(error({{"max_cycle", int64_t{5}}}), HasSubstr("did you mean 'max_cycles'?"));
  EXPECT_EQ(MakeMpeEnv("simple_tug_v3", {}).status().code(), absl::StatusCode::kNotFound);
}

TEST(SimpleSpreadTest, ResetsAreUniformAndFollowTheSeed) {
  Play play(kName);
  const auto first = [&](const env::EpisodeSeed& seed) {
    play.Reset(seed);
    return std::vector<float>(play.obs(0).begin(), play.obs(0).end());
  };
  EXPECT_EQ(first({1, base::EnvId(2), 3}), first({1, base::EnvId(2), 3}));
  EXPECT_NE(first({1, base::EnvId(2), 3}), first({2, base::EnvId(2), 3}));
  EXPECT_NE(first({1, base::EnvId(2), 3}), first({1, base::EnvId(3), 3}));
  EXPECT_NE(first({1, base::EnvId(2), 3}), first({1, base::EnvId(2), 4}));
  double sum = 0, squares = 0, most = 0;
  constexpr int kEpisodes = 4000;
  for (uint32_t episode = 0; episode < kEpisodes; ++episode) {
    const float x = first({7, base::EnvId(0), episode})[2];
    sum += x;
    squares += x * x;
    most = std::max<double>(most, std::abs(x));
  }
  EXPECT_NEAR(sum / kEpisodes, 0, 0.04);            // standard error 0.009
  EXPECT_NEAR(squares / kEpisodes, 1.0 / 3, 0.03);  // standard error 0.005
  EXPECT_LE(most, 1);
  EXPECT_GT(most, 0.99);
}

TEST(SimpleSpreadTest, RewardsByHand) {
  Play play(kName, {{"N", int64_t{2}}, {"local_ratio", 0.25}, {"benchmark_data", true}});
  ASSERT_TRUE(play.ResetTo(Places({{0, 0}, {0.2, 0}}, {{0, 0.3}, {1.2, 0}})).ok());
  EXPECT_THAT(play.obs(1), ElementsAre(0, 0, 0.2f, 0, -0.2f, 0.3f, 1.0f, 0, -0.2f, 0, 0, 0));
  ASSERT_TRUE(play.Step().ok());  // velocities were 0: nobody has moved yet
  const double global = -(0.3 + 1.0);
  EXPECT_FLOAT_EQ(play.reward(0), static_cast<float>(0.75 * global + 0.25 * -1));
  EXPECT_THAT(play.buffers->infos(0, 0),
              ElementsAre(::testing::DoubleEq(global - 1), 1, ::testing::DoubleEq(-global), 0));
  // Pushed apart along x by the contact: penetration 0.1, force 10, speed 1 after 0.1 s.
  EXPECT_NEAR(play.obs(0)[0], -1.0, 1e-6);
  EXPECT_NEAR(play.obs(1)[0], 1.0, 1e-6);
}

TEST(SimpleSpreadTest, BodiesAtTheSamePlaceStayFinite) {
  Play play(kName, {{"N", int64_t{2}}});
  ASSERT_TRUE(play.ResetTo(Places({{0.5, 0.5}, {0.5, 0.5}}, {{0, 0}, {1, 1}})).ok());
  ASSERT_TRUE(play.Step().ok());
  EXPECT_EQ(play.obs(0)[0], 0.0f);
}

TEST(SimpleSpreadTest, ContinuousActionsAreClippedToTheBox) {
  const auto velocity = [](std::vector<float> action) {
    Play play(kName, {{"N", int64_t{1}}, {"continuous_actions", true}});
    EXPECT_TRUE(play.ResetTo(Places({{0, 0}}, {{1, 1}})).ok());
    EXPECT_TRUE(play.StepContinuous({std::move(action)}).ok());
    return std::vector<float>{play.obs(0)[0], play.obs(0)[1]};
  };
  EXPECT_THAT(velocity({0, 0, 1, 0.5, 0}), ElementsAre(0.5f, -0.25f));
  EXPECT_EQ(velocity({9, -3, 7, 0.5, -1}), velocity({0, 0, 1, 0.5, 0}));
}

TEST(SimpleSpreadTest, NeighboursAreTheNearestAndPadded) {
  Play play(kName, {{"num_agent_neighbors", int64_t{1}}, {"num_landmark_neighbors", int64_t{4}}});
  ASSERT_TRUE(play.ResetTo(Places({{0, 0}, {0.9, 0}, {-0.5, 0}}, {{0, 1}, {0, 0.5}, {0, -0.75}})).ok());
  // Own velocity and position, landmarks by distance and one pad, the nearest other agent, its silence.
  EXPECT_THAT(play.obs(0), ElementsAre(0, 0, 0, 0, 0, 0.5f, 0, -0.75f, 0, 1, 0, 0, -0.5f, 0, 0, 0));
}

TEST(SimpleSpreadTest, EndsBySuccessOrByTheLimit) {
  Play play(kName, {{"N", int64_t{2}}, {"max_cycles", int64_t{2}}, {"terminate_on_success", true}});
  const WorldState covered = Places({{0, 0}, {1, 1}}, {{0, 0.05}, {1, 0.95}});
  ASSERT_TRUE(play.ResetTo(covered).ok());
  ASSERT_TRUE(play.Step().ok());
  EXPECT_TRUE(play.buffers->all_terminated(0));
  EXPECT_TRUE(play.buffers->terminated(0, 0));
  EXPECT_FALSE(play.buffers->all_truncated(0));

  ASSERT_TRUE(play.ResetTo(Places({{0, 0}, {1, 1}}, {{0, 0.05}, {1, 0.5}})).ok());
  ASSERT_TRUE(play.Step().ok());
  EXPECT_FALSE(play.buffers->all_done(0));
  ASSERT_TRUE(play.Step().ok());
  EXPECT_TRUE(play.buffers->all_truncated(0));
  EXPECT_TRUE(play.buffers->truncated(0, 1));

  // The limit wins, as in the original.
  Play limit_first(kName, {{"N", int64_t{2}}, {"max_cycles", int64_t{1}}, {"terminate_on_success", true}});
  ASSERT_TRUE(limit_first.ResetTo(covered).ok());
  ASSERT_TRUE(limit_first.Step().ok());
  EXPECT_TRUE(limit_first.buffers->all_truncated(0));
  EXPECT_FALSE(limit_first.buffers->terminated(0, 0));
}

TEST(SimpleSpreadTest, CurriculumStagesDecideAboutTouching) {
  const auto reward = [](Play& play) {
    EXPECT_TRUE(play.ResetTo(Places({{0, 0}, {0.2, 0}}, {{0, 0}, {0.2, 0}})).ok());
    EXPECT_TRUE(play.Step().ok());
    return play.reward(0);
  };
  Play play(kName, {{"N", int64_t{2}}, {"curriculum", true}});
  EXPECT_EQ(play.env->curriculum_stage(), 0);
  EXPECT_EQ(reward(play), 0.0f);
  play.env->AdvanceCurriculum();
  EXPECT_EQ(play.env->curriculum_stage(), 1);
  EXPECT_EQ(reward(play), -0.5f);
  play.env->AdvanceCurriculum();  // already at the last one
  EXPECT_EQ(play.env->curriculum_stage(), 1);
  play.env->SetCurriculumStage(-4);
  EXPECT_EQ(play.env->curriculum_stage(), 0);
  Play started(kName, {{"N", int64_t{2}}, {"curriculum", true}, {"curriculum_stage", int64_t{1}}});
  EXPECT_EQ(reward(started), -0.5f);
  Play off(kName, {{"N", int64_t{2}}});
  EXPECT_EQ(reward(off), -0.5f);
}

TEST(SimpleSpreadTest, RefusesBadActionsAndWorlds) {
  Play play(kName, {{"N", int64_t{2}}});
  ASSERT_TRUE(play.ResetTo(Places({{0, 0}, {1, 1}}, {{0, 0}, {1, 1}})).ok());
  EXPECT_THAT(std::string(play.Step({5}).message()), HasSubstr("agent_0: action is 5, expected one in [0, 4]"));
  EXPECT_THAT(std::string(play.Step({-1}).message()), HasSubstr("action is -1"));
  const space::ActionWord stay{.i32 = 0};
  const std::array<const space::ActionWord*, 2> rows = {&stay, nullptr};
  EXPECT_THAT(std::string(play.env->Step(rows, play.buffers->BeginStep(0)).message()),
              HasSubstr("agent_1 did not act"));
  EXPECT_FALSE(play.ResetTo(Places({{0, 0}}, {{0, 0}})).ok());
}

}  // namespace
}  // namespace troupe::envs
