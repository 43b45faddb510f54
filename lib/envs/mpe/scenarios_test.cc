// What recordings of the originals do not show: arguments, resets, and curricula. tests/conformance/replay_test.cc has
// the recordings.

#include "lib/envs/mpe/scenarios.h"

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envs/mpe/testing/play.h"

namespace troupe::envs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kNames[] = {"collect_treasure",  "simple",           "simple_adversary",
                                  "simple_crypto",     "simple_formation", "simple_line",
                                  "simple_push",       "simple_reference", "simple_spread",
                                  "simple_world_comm", "simple_tag",       "simple_speaker_listener"};

/// Agents, observation sizes and action spaces as one text.
std::string Shape(const std::string& name, Args args = {}) {
  const Play play(name, std::move(args));
  std::vector<std::string> agents;
  for (const env::AgentSpec& agent : play.env->spec().possible_agents) {
    agents.push_back(
        absl::StrCat(agent.id.value(), " ", agent.observation_space.flat_size(), " ", agent.action_space.ToString()));
  }
  return absl::StrJoin(agents, ", ");
}

TEST(ScenariosTest, SpacesAreThoseOfTheOriginals) {
  const Args real = {{"continuous_actions", true}};
  EXPECT_EQ(Shape("simple_v3"), "agent_0 4 Discrete(5)");
  EXPECT_EQ(Shape("simple_v3", real), "agent_0 4 Box(0, 1, [5])");
  EXPECT_EQ(Shape("simple_adversary_v3"), "adversary_0 8 Discrete(5), agent_0 10 Discrete(5), agent_1 10 Discrete(5)");
  EXPECT_EQ(Shape("simple_crypto_v3"), "eve_0 4 Discrete(4), bob_0 8 Discrete(4), alice_0 8 Discrete(4)");
  EXPECT_EQ(Shape("simple_crypto_v3", real),
            "eve_0 4 Box(0, 1, [4]), bob_0 8 Box(0, 1, [4]), alice_0 8 Box(0, 1, [4])");
  EXPECT_EQ(Shape("simple_push_v3"), "adversary_0 8 Discrete(5), agent_0 19 Discrete(5)");
  EXPECT_EQ(Shape("simple_reference_v3"), "agent_0 21 Discrete(50), agent_1 21 Discrete(50)");
  EXPECT_EQ(Shape("simple_reference_v3", real), "agent_0 21 Box(0, 1, [15]), agent_1 21 Box(0, 1, [15])");
  EXPECT_EQ(Shape("simple_speaker_listener_v4"), "speaker_0 3 Discrete(3), listener_0 11 Discrete(5)");
  EXPECT_EQ(Shape("simple_speaker_listener_v4", real), "speaker_0 3 Box(0, 1, [3]), listener_0 11 Box(0, 1, [5])");
  EXPECT_EQ(
      Shape("simple_tag_v3"),
      "adversary_0 16 Discrete(5), adversary_1 16 Discrete(5), adversary_2 16 Discrete(5), agent_0 14 Discrete(5)");
  EXPECT_EQ(Shape("simple_world_comm_v3"),
            "leadadversary_0 34 Discrete(20), adversary_0 34 Discrete(5), adversary_1 34 Discrete(5), "
            "adversary_2 34 Discrete(5), agent_0 28 Discrete(5), agent_1 28 Discrete(5)");
  EXPECT_EQ(Shape("simple_world_comm_v3", {{"num_adversaries", int64_t{0}}}),
            "leadadversary_0 24 Discrete(20), agent_1 20 Discrete(5)");
  EXPECT_EQ(Shape("simple_formation_v1", {{"N", int64_t{2}}}), "agent_0 6 Discrete(5), agent_1 6 Discrete(5)");
  EXPECT_EQ(Shape("simple_line_v1", {{"N", int64_t{1}}}), "agent_0 8 Discrete(5)");
  EXPECT_EQ(Shape("collect_treasure_v1", {{"num_collectors", int64_t{1}}, {"num_treasures", int64_t{1}}}),
            "collector_0 26 Discrete(5), deposit_0 24 Discrete(5), deposit_1 24 Discrete(5)");
  EXPECT_EQ(Play("collect_treasure_v1").env->spec().state_space.flat_size(), 684);
  EXPECT_EQ(Play("simple_world_comm_v3").env->spec().state_space.flat_size(), 192);
}

TEST(ScenariosTest, BenchmarkDataHasColumnsWhereTheOriginalHasData) {
  std::map<std::string, std::string> columns;
  for (const std::string name : kNames) {
    EXPECT_TRUE(Play("mpe/" + name).env->spec().info_columns.empty());
    const Play play("mpe/" + name, {{"benchmark_data", true}});
    columns[name] = absl::StrJoin(play.env->spec().info_columns, " ");
  }
  EXPECT_EQ(columns["simple"] + columns["simple_push"] + columns["simple_reference"] + columns["simple_formation"] +
                columns["simple_line"],
            "");
  EXPECT_EQ(columns["simple_adversary"],
            "landmark_0_squared_distance landmark_1_squared_distance goal_squared_distance");
  EXPECT_EQ(columns["simple_crypto"], "said_0 said_1 said_2 said_3 word_0 word_1 word_2 word_3");
  EXPECT_EQ(columns["simple_speaker_listener"], "benchmark_reward");
  EXPECT_EQ(columns["simple_tag"], "collisions");
  EXPECT_EQ(columns["simple_world_comm"], "collisions");
  EXPECT_EQ(columns["collect_treasure"], "holding carriers treasures");
  const Play play("mpe/collect_treasure", {{"benchmark_data", true}});
  EXPECT_THAT(play.env->benchmark_columns(env::AgentSlot(0)), ElementsAre(0, 2));
  EXPECT_THAT(play.env->benchmark_columns(env::AgentSlot(6)), ElementsAre(1, 2));
}

TEST(ScenariosTest, RefuseBadArguments) {
  for (const std::string name : kNames) {
    const std::string env = "mpe/" + name;
    EXPECT_THAT(MakeError(env, {{"max_cycles", int64_t{0}}}), HasSubstr("argument max_cycles is 0"));
    EXPECT_THAT(MakeError(env, {{"continuous_actions", int64_t{1}}}), HasSubstr("expected true or false"));
    EXPECT_THAT(MakeError(env, {{"dynamic_rescaling", std::string("no")}}), HasSubstr("dynamic_rescaling"));
    EXPECT_THAT(MakeError(env, {{"render_mode", std::string("human")}}), HasSubstr("troupe evaluate --video"));
    EXPECT_THAT(MakeError(env, {{"benchmark_date", true}}), HasSubstr("did you mean 'benchmark_data'?"));
    EXPECT_EQ(MakeError(env, {{"dynamic_rescaling", false}, {"render_mode", std::monostate()}}), "");
  }
  struct Bad {
    const char* env;
    const char* argument;
    int64_t value;
    const char* expected;
  };
  for (const Bad& bad :
       std::vector<Bad>{{"mpe/simple_adversary", "N", 0, "an integer in [1, 512]"},
                        {"mpe/simple_adversary", "N", 513, "an integer in [1, 512]"},
                        {"mpe/simple_adversary", "num_agent_neighbors", 0, "an integer in [1, 512] or null"},
                        {"mpe/simple_adversary", "num_landmark_neighbors", 513, "an integer in [1, 512] or null"},
                        {"mpe/simple_formation", "N", 0, "an integer in [1, 512]"},
                        {"mpe/simple_line", "N", 513, "an integer in [1, 512]"},
                        {"mpe/simple_reference", "local_ratio", 2, "a number in [0, 1]"},
                        {"mpe/simple_tag", "num_good", -1, "an integer in [0, 512]"},
                        {"mpe/simple_tag", "num_adversaries", 513, "an integer in [0, 512]"},
                        {"mpe/simple_tag", "num_obstacles", -1, "an integer in [0, 512]"},
                        {"mpe/simple_tag", "curriculum_stage", 3, "an integer in [0, 2]"},
                        {"mpe/simple_tag", "num_agent_neighbors", 0, "an integer in [1, 512] or null"},
                        {"mpe/simple_world_comm", "num_good", 0, "an integer in [1, 512]"},
                        {"mpe/simple_world_comm", "num_food", 0, "an integer in [1, 512]"},
                        {"mpe/simple_world_comm", "num_forests", 65, "an integer in [0, 64]"},
                        {"mpe/collect_treasure", "num_collectors", 0, "an integer in [1, 512]"},
                        {"mpe/collect_treasure", "num_deposits", 7, "an integer in [1, 6]"},
                        {"mpe/collect_treasure", "num_treasures", 0, "an integer in [1, 512]"}}) {
    EXPECT_THAT(MakeError(bad.env, {{bad.argument, bad.value}}),
                StartsWith(absl::StrCat("argument ", bad.argument, " is ", bad.value, ", expected ", bad.expected)));
  }
  EXPECT_THAT(MakeError("mpe/simple_tag", {{"num_good", int64_t{510}}}),
              HasSubstr("make 513 agents, expected 1 to 512"));
  EXPECT_THAT(MakeError("mpe/simple_tag", {{"num_good", int64_t{0}}, {"num_adversaries", int64_t{0}}}),
              HasSubstr("make 0 agents"));
  EXPECT_THAT(MakeError("mpe/simple_tag", {{"curriculum_stage", int64_t{2}}}), HasSubstr("without curriculum: true"));
  EXPECT_THAT(MakeError("simple_spreed_v3", {}), HasSubstr("expected one of collect_treasure_v1, simple_v3"));
}

TEST(ScenariosTest, ResetsFollowTheSeedAlone) {
  for (const std::string name : kNames) {
    Play play("mpe/" + name);
    const auto first = [&](const env::EpisodeSeed& seed) {
      play.Reset(seed);
      const absl::Span<const float> state = play.buffers->state(0, 0);
      return std::vector<float>(state.begin(), state.end());
    };
    const std::vector<float> one = first({1, base::EnvId(2), 3});
    ASSERT_TRUE(play.Step().ok());
    EXPECT_NE(first({1, base::EnvId(2), 4}), one) << name;
    EXPECT_NE(first({1, base::EnvId(3), 3}), one) << name;
    EXPECT_EQ(first({1, base::EnvId(2), 3}), one) << name;
  }
}

/// How often each of some things happened in 3000 episodes; each of `kinds` equally likely ones about as often.
void ExpectUniform(const std::map<std::string, int>& counts, size_t kinds) {
  constexpr double kEpisodes = 3000;
  ASSERT_EQ(counts.size(), kinds);
  const double expected = kEpisodes / static_cast<double>(kinds);
  for (const auto& [what, count] : counts) EXPECT_NEAR(count, expected, 4.5 * std::sqrt(expected)) << what;
}

TEST(ScenariosTest, GoalsAreDrawnUniformly) {
  struct Part {
    const char* env;
    int32_t slot;
    size_t first;
    size_t count;
    size_t kinds;
  };
  // Where observations show the goals: colors and words.
  for (const Part& part : std::vector<Part>{{"mpe/simple_push", 1, 4, 3, 2},
                                            {"mpe/simple_reference", 0, 8, 3, 3},
                                            {"mpe/simple_reference", 1, 8, 3, 3},
                                            {"mpe/simple_speaker_listener", 0, 0, 3, 3},
                                            {"mpe/simple_crypto", 2, 0, 8, 4}}) {
    Play play(part.env);
    std::map<std::string, int> counts;
    for (uint32_t episode = 0; episode < 3000; ++episode) {
      play.Reset({9, base::EnvId(0), episode});
      ++counts[absl::StrJoin(play.obs(part.slot).subspan(part.first, part.count), " ")];
    }
    SCOPED_TRACE(part.env);
    ExpectUniform(counts, part.kinds);
  }
  Play play("mpe/simple_adversary", {{"N", int64_t{3}}});
  std::map<std::string, int> counts;
  for (uint32_t episode = 0; episode < 3000; ++episode) {
    play.Reset({9, base::EnvId(0), episode});
    const absl::Span<const float> row = play.obs(1);  // the goal, three landmarks, three agents
    for (size_t l = 0; l < 3; ++l) {
      if (row[0] == row[2 + 2 * l] && row[1] == row[3 + 2 * l]) ++counts[absl::StrCat(l)];
    }
  }
  ExpectUniform(counts, 3);
}

/// Extremes of absolute positions over many resets: agent 0's and those of landmarks.
TEST(ScenariosTest, ResetsKeepToTheirBounds) {
  struct Bounds {
    const char* env;
    size_t own;       ///< where the observation has its own position
    size_t landmark;  ///< and the first landmark
    double bound;     ///< of that landmark's coordinates
  };
  for (const Bounds& b : std::vector<Bounds>{{"mpe/simple_tag", 2, 4, 0.9},
                                             {"mpe/simple_world_comm", 2, 10, 0.9},
                                             {"mpe/simple_formation", 2, 4, 0.5},
                                             {"mpe/simple_line", 2, 4, 0.25}}) {
    Play play(b.env);
    double own = 0, landmark = 0;
    for (uint32_t episode = 0; episode < 2000; ++episode) {
      play.Reset({4, base::EnvId(0), episode});
      const absl::Span<const float> row = play.obs(0);
      for (size_t axis = 0; axis < 2; ++axis) {
        const double x = row[b.own + axis];
        own = std::max(own, std::abs(x));
        landmark = std::max(landmark, std::abs(x + row[b.landmark + axis]));
      }
    }
    EXPECT_LE(own, 1);
    EXPECT_GT(own, 0.99);
    EXPECT_LE(landmark, b.bound + 1e-6) << b.env;
    EXPECT_GT(landmark, 0.99 * b.bound) << b.env;
  }
}

TEST(ScenariosTest, LinesHaveTheirLengthInEveryDirection) {
  Play play("mpe/simple_line", {{"N", int64_t{2}}});
  std::array<int, 4> quadrants{};
  for (uint32_t episode = 0; episode < 1000; ++episode) {
    play.Reset({4, base::EnvId(0), episode});
    const absl::Span<const float> row = play.obs(0);
    const double dx = row[6] - row[4];
    const double dy = row[7] - row[5];
    EXPECT_NEAR(std::hypot(dx, dy), 1.25, 1e-5);
    EXPECT_LT(std::abs(row[2] + row[6]), 1 + 1e-6);
    EXPECT_LT(std::abs(row[3] + row[7]), 1 + 1e-6);
    ++quadrants[(dx > 0 ? 1 : 0) + (dy > 0 ? 2 : 0)];
  }
  for (const int count : quadrants) EXPECT_GT(count, 150);
}

TEST(ScenariosTest, AnActionMovesAndSpeaks) {
  Play play("mpe/simple_reference");
  play.Reset({1, base::EnvId(1), 1});
  ASSERT_TRUE(play.Step({5 * 7 + 2, 5 * 9 + 3}).ok());  // right and word 7; down and word 9
  EXPECT_FLOAT_EQ(play.obs(0)[0], 0.5f);
  EXPECT_EQ(play.obs(0)[1], 0);
  EXPECT_EQ(play.obs(1)[0], 0);
  EXPECT_FLOAT_EQ(play.obs(1)[1], -0.5f);
  for (size_t c = 0; c < 10; ++c) {
    EXPECT_EQ(play.obs(1)[11 + c], c == 7 ? 1 : 0);
    EXPECT_EQ(play.obs(0)[11 + c], c == 9 ? 1 : 0);
  }
  EXPECT_THAT(std::string(play.Step({50, 0}).message()), HasSubstr("agent_0: action is 50, expected one in [0, 49]"));
  EXPECT_THAT(std::string(play.Step({0, -1}).message()), HasSubstr("agent_1: action is -1"));

  Play real("mpe/simple_world_comm", {{"continuous_actions", true}});
  real.Reset({1, base::EnvId(1), 1});
  std::vector<std::vector<float>> actions(6, std::vector<float>(5, 0.0f));
  actions[0] = {0, 0, 2, 0.5, 0.25, 0.125, -1, 7, 0.5};  // clipped to [0, 1]
  ASSERT_TRUE(real.StepContinuous(actions).ok());
  EXPECT_FLOAT_EQ(real.obs(0)[0], 0.3f);  // accel 3
  EXPECT_FLOAT_EQ(real.obs(0)[1], -0.075f);
  EXPECT_THAT(real.obs(3).subspan(30), ElementsAre(0.125f, 0, 1, 0.5f));
}

TEST(ScenariosTest, EveryEnvironmentIsTruncated) {
  for (const std::string name : kNames) {
    Play play("mpe/" + name, {{"max_cycles", int64_t{2}}});
    play.Reset({1, base::EnvId(1), 1});
    ASSERT_TRUE(play.Step().ok());
    EXPECT_FALSE(play.buffers->all_done(0));
    ASSERT_TRUE(play.Step().ok());
    EXPECT_TRUE(play.buffers->all_truncated(0)) << name;
    for (int32_t slot = 0; slot < play.env->spec().num_agents(); ++slot) EXPECT_TRUE(play.buffers->truncated(0, slot));
  }
}

TEST(ScenariosTest, GoodAgentsReachTheSpeedOfTheirStage) {
  const auto speed = [](Play& play) {
    play.Reset({1, base::EnvId(1), 1});
    for (int i = 0; i < 12; ++i) EXPECT_TRUE(play.Step({2}).ok());
    return play.obs(0)[0];
  };
  const Args alone = {{"num_good", int64_t{1}}, {"num_adversaries", int64_t{0}}, {"num_obstacles", int64_t{0}}};
  Play plain("mpe/simple_tag", alone);
  EXPECT_FLOAT_EQ(speed(plain), 1.3f);
  Args with = alone;
  with.emplace_back("curriculum", true);
  Play play("mpe/simple_tag", with);
  EXPECT_FLOAT_EQ(speed(play), 0.65f);
  play.env->AdvanceCurriculum();
  ASSERT_TRUE(play.Step({2}).ok());
  EXPECT_FLOAT_EQ(play.obs(0)[0], 0.65f);  // from the next reset on
  EXPECT_FLOAT_EQ(speed(play), 0.975f);
  play.env->AdvanceCurriculum();
  play.env->AdvanceCurriculum();  // already the last one
  EXPECT_EQ(play.env->curriculum_stage(), 2);
  EXPECT_FLOAT_EQ(speed(play), 1.3f);
  with.emplace_back("curriculum_stage", int64_t{1});
  Play started("mpe/simple_tag", with);
  EXPECT_FLOAT_EQ(speed(started), 0.975f);
}

TEST(ScenariosTest, ForestsHideButNotFromTheLeader) {
  Play play("mpe/simple_world_comm", {{"num_good", int64_t{1}},
                                      {"num_adversaries", int64_t{2}},
                                      {"num_obstacles", int64_t{0}},
                                      {"num_food", int64_t{1}},
                                      {"num_forests", int64_t{2}}});
  WorldState state;
  state.agents = {{.position = {0.9, 0.9}}, {.position = {-0.9, 0.9}}, {.position = {0.5, 0}, .velocity = {0.1, 0.2}}};
  state.landmarks = {{.position = {0, 0}}, {.position = {0.5, 0.1}}, {.position = {-0.5, -0.5}}};
  ASSERT_TRUE(play.ResetTo(state).ok());
  // 4 own, 3 landmarks, 2 others, 1 velocity, 2 forests, 4 words.
  EXPECT_THAT(play.obs(0).subspan(12, 4), ElementsAre(-0.4f, -0.9f, 0.1f, 0.2f));
  EXPECT_THAT(play.obs(1).subspan(10, 8), ElementsAre(1.8f, 0, 0, 0, 0, 0, -1, -1));
  // The good agent is inside, the others are not: 2 others, 2 forests.
  EXPECT_THAT(play.obs(2).subspan(10, 6), ElementsAre(0, 0, 0, 0, 1, -1));
  state.agents[1].position[0] = 0.45;
  state.agents[1].position[1] = 0.2;
  ASSERT_TRUE(play.ResetTo(state).ok());
  EXPECT_FLOAT_EQ(play.obs(1)[12], 0.05f);  // both in the first forest
  EXPECT_FLOAT_EQ(play.obs(2)[12], -0.05f);
}

TEST(ScenariosTest, TouchingEndsTheChaseWhenThatIsAskedFor) {
  WorldState state;
  state.agents = {{.position = {0, 0}}, {.position = {0.1, 0}}, {.position = {0.9, 0.9}}};
  for (const bool ends : {false, true}) {
    Play play("mpe/simple_tag", {{"num_good", int64_t{2}},
                                 {"num_adversaries", int64_t{1}},
                                 {"num_obstacles", int64_t{0}},
                                 {"terminate_on_success", ends}});
    ASSERT_TRUE(play.ResetTo(state).ok());
    ASSERT_TRUE(play.Step().ok());
    EXPECT_FALSE(play.buffers->all_done(0));  // one of two
    EXPECT_EQ(play.reward(0), 10);
    EXPECT_EQ(play.reward(1), -10);
    WorldState both = state;
    both.agents[2].position[0] = 0;
    both.agents[2].position[1] = 0.1;
    ASSERT_TRUE(play.ResetTo(both).ok());
    ASSERT_TRUE(play.Step().ok());
    EXPECT_EQ(play.buffers->all_terminated(0), ends);
    EXPECT_EQ(play.reward(0), 20);
  }
}

}  // namespace
}  // namespace troupe::envs
