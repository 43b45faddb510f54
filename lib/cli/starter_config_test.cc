#include "lib/cli/starter_config.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/config/run_config.h"
#include <gmock/gmock.h>

namespace troupe::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

env::AgentSpec Agent(const std::string& id, const std::string& observations, const std::string& actions) {
  env::AgentSpec agent;
  agent.id = env::AgentId(id);
  agent.observation_space = *space::ParseSpace(observations);
  agent.action_space = *space::ParseSpace(actions);
  return agent;
}

StarterFacts Facts(std::vector<env::AgentSpec> agents) {
  StarterFacts facts;
  facts.spelled = "my_env.py:Env";
  facts.env_yaml = "{name: \"my_env.py:Env\"}";
  facts.spec.possible_agents = std::move(agents);
  return facts;
}

constexpr char kThree[] = "Box(-1, 1, [3])";
constexpr char kAction[] = "Discrete(2)";
constexpr char kFive[] = "Box(-1, 1, [5])";

/// Whether a configuration can be read from it; what it does with an environment e2e_first_minutes_test shows.
std::string Read(const StarterFacts& facts) {
  std::string yaml = StarterYaml(facts, "my_env.yaml");
  const absl::StatusOr<config::RunConfig> config = config::RunConfig::FromYaml(yaml, "my_env.yaml");
  EXPECT_TRUE(config.ok()) << config.status() << "\n" << yaml;
  return yaml;
}

TEST(StarterConfigTest, AgentsThatAreAlikeShareAPolicy) {
  const std::string yaml = Read(Facts({Agent("a_0", kThree, "Discrete(2)"), Agent("a_1", kThree, "Discrete(2)")}));
  EXPECT_THAT(yaml, HasSubstr("\n  name: mappo "));
  EXPECT_THAT(yaml, Not(HasSubstr("multi_agent")));
  EXPECT_THAT(yaml, Not(HasSubstr("encoder")));
}

TEST(StarterConfigTest, OneAgentIsTrainedByPpo) {
  EXPECT_THAT(Read(Facts({Agent("agent", kThree, "Discrete(2)")})), HasSubstr("\n  name: ppo "));
}

TEST(StarterConfigTest, WhoWinsWhatTheOtherLosesHasAPolicyOfItsOwn) {
  StarterFacts facts = Facts({Agent("a_0", kThree, "Discrete(2)"), Agent("a_1", kThree, "Discrete(2)")});
  facts.zero_sum = true;
  const std::string yaml = Read(facts);
  EXPECT_THAT(yaml, HasSubstr("multi_agent: {policy_mapping: per_agent}"));
  EXPECT_THAT(yaml, HasSubstr("\n  name: ippo "));
}

TEST(StarterConfigTest, WithoutARewardItSaysWhatItCouldNotSee) {
  StarterFacts facts = Facts({Agent("white", kThree, "Discrete(2)"), Agent("black", kThree, "Discrete(2)")});
  EXPECT_THAT(Read(facts), Not(HasSubstr("no reward")));
  facts.no_reward = true;
  EXPECT_THAT(Read(facts), HasSubstr("\n# Random play got no reward. If one agent wins what another loses, take ippo"));
}

TEST(StarterConfigTest, TwoThatTakeTurnsWithoutARewardAreOpponents) {
  StarterFacts facts = Facts({Agent("white", kThree, "Discrete(2)"), Agent("black", kThree, "Discrete(2)")});
  facts.takes_turns = true;
  EXPECT_THAT(Read(facts), Not(HasSubstr("multi_agent"))) << "a reward would have shown whether they are";
  facts.no_reward = true;
  const std::string yaml = Read(facts);
  EXPECT_THAT(yaml, HasSubstr("\nmulti_agent: {policy_mapping: per_agent}\n"));
  EXPECT_THAT(yaml, HasSubstr("\n  name: ippo "));
  facts.spec.possible_agents.push_back(Agent("third", kThree, "Discrete(2)"));
  EXPECT_THAT(Read(facts), Not(HasSubstr("\nmulti_agent")));
}

TEST(StarterConfigTest, LargeImagesBecomeGrayAndSmall) {
  const auto keys = [](const std::vector<std::string>& spaces) {
    std::vector<env::AgentSpec> agents;
    for (const std::string& space : spaces) agents.push_back(Agent(absl::StrCat("a", agents.size()), space, kAction));
    return SmallerImages(Facts(agents).spec);
  };
  const std::string pong = "Box(0, 255, [280, 480, 3], uint8)";
  EXPECT_THAT(keys({pong, pong}), ElementsAre("env.grayscale=true", "env.resize=[49, 84]"));
  EXPECT_THAT(keys({"Box(0, 255, [457, 20, 1], uint8)"}), ElementsAre("env.resize=[84, 10]")) << "gray, and narrow";
  EXPECT_THAT(keys({"Box(0, 255, [128, 128, 3], uint8)"}), ElementsAre()) << "small enough";
  EXPECT_THAT(keys({pong, kThree}), ElementsAre()) << "somebody observes no image";
  StarterFacts facts = Facts({Agent("a", "Box(0, 255, [49, 84, 1], uint8)", kAction)});
  EXPECT_THAT(Read(facts), Not(HasSubstr("images are large")));
  facts.shrinks_images = true;
  EXPECT_THAT(Read(facts), HasSubstr("\n# Its images are large; gray and smaller ones train much faster.\nenv: "));
}

TEST(StarterConfigTest, ManyAgentsHaveFewerEnvStepsABatch) {
  std::vector<env::AgentSpec> agents;
  for (int i = 0; i < 162; ++i) agents.push_back(Agent(absl::StrCat("a_", i), kThree, "Discrete(2)"));
  EXPECT_THAT(
      Read(Facts(agents)),
      HasSubstr("\n  train_batch_size: 300           # env steps of an update; of 162 agents they are 48,600 rows"));
  agents.resize(16);
  EXPECT_THAT(Read(Facts(agents)), HasSubstr("\n  train_batch_size: 2048 "));
}

TEST(StarterConfigTest, AgentsThatAlwaysObserveDifferentlyGetNoNames) {
  StarterFacts facts = Facts({Agent("a_0", kThree, kAction), Agent("a_1", kThree, kAction)});
  EXPECT_THAT(Read(facts), HasSubstr("\n  use_agent_id: false "));
  facts.saw_alike = true;
  EXPECT_THAT(Read(facts), Not(HasSubstr("use_agent_id")));
  EXPECT_THAT(Read(Facts({Agent("a", kThree, kAction), Agent("b", kFive, kAction)})), Not(HasSubstr("use_agent_id")))
      << "each has a policy of its own";
}

TEST(StarterConfigTest, GammaLooksHalfAnEpisodeAheadWhereAllLastAsLong) {
  StarterFacts facts = Facts({Agent("agent", kThree, "Discrete(2)")});
  facts.episode_length = 25;
  EXPECT_THAT(Read(facts), HasSubstr("\n  gamma: 0.99 ")) << "a better agent may play longer ones";
  facts.fixed_length = true;
  EXPECT_THAT(Read(facts),
              HasSubstr("\n  gamma: 0.92                     # looks half an episode ahead, which lasts 25 "
                        "env steps\n"));
  facts.episode_length = 3;
  EXPECT_THAT(Read(facts), HasSubstr("\n  gamma: 0.90 "));
  facts.episode_length = 200;
  EXPECT_THAT(Read(facts), HasSubstr("\n  gamma: 0.99 "));
}

TEST(StarterConfigTest, EntropyAndNormalizationFollowFromSpaces) {
  EXPECT_THAT(Read(Facts({Agent("agent", kThree, "Discrete(2)")})),
              testing::AllOf(HasSubstr("\n  entropy_coeff: {initial: 0.01, final: 0, env_steps: 1000000}\n"),
                             HasSubstr("# false; true helps where")));
  EXPECT_THAT(Read(Facts({Agent("agent", "Box(-inf, inf, [3])", "Box(-1, 1, [2])")})),
              testing::AllOf(HasSubstr("# 0: a bonus would keep up"), HasSubstr("# true with continuous actions")));
  EXPECT_THAT(Read(Facts({Agent("a", kThree, "Discrete(2)"), Agent("b", kThree, "Box(-1, 1, [2])")})),
              HasSubstr("# 0 for policies with continuous actions, 0.01 for the others"));
}

TEST(StarterConfigTest, ImagesGetConvolutionsAndNoCriticOfAllImages) {
  const std::string yaml = Read(Facts({Agent("a", "Box(0, 255, [84, 84, 3], uint8)", "Discrete(2)"),
                                       Agent("b", "Box(0, 255, [84, 84, 3], uint8)", "Discrete(2)")}));
  EXPECT_THAT(yaml, HasSubstr("model: {encoder: auto}"));
  EXPECT_THAT(yaml, HasSubstr("\n  name: ippo "));
}

TEST(StarterConfigTest, WhatGetsNoConvolutionsIsNoImage) {
  for (const char* grid : {"Box(-1, 1, [3, 11, 11])", "Box(0, 1, [11, 11, 3])"}) {
    const std::string yaml = Read(Facts({Agent("a", grid, "Discrete(2)"), Agent("b", grid, "Discrete(2)")}));
    EXPECT_THAT(yaml, Not(HasSubstr("encoder")));
    EXPECT_THAT(yaml, HasSubstr("\n  name: mappo "));
  }
}

TEST(StarterConfigTest, SlowEnvironmentsHaveSmallBatchesAndFewEpisodes) {
  StarterFacts facts = Facts({Agent("a", kThree, "Discrete(2)")});
  facts.episode_length = 200;
  for (const auto& [speed, batch, envs, episodes] :
       {std::tuple(6.0, 256, 4, 5), std::tuple(60.0, 1152, 4, 18), std::tuple(500.0, 2048, 16, 100),
        std::tuple(0.0, 2048, 16, 100)}) {
    facts.env_steps_per_s = speed;
    const std::string yaml = Read(facts);
    EXPECT_THAT(yaml, HasSubstr(absl::StrCat("\n  train_batch_size: ", batch, " "))) << speed;
    EXPECT_THAT(yaml, HasSubstr(absl::StrCat("\nnum_envs_per_worker: ", envs, " "))) << speed;
    EXPECT_THAT(yaml, HasSubstr(absl::StrCat("\nevaluation: {episodes: ", episodes, "} "))) << speed;
  }
}

TEST(StarterConfigTest, EpisodesOfWhichNoneEndedAreLong) {
  StarterFacts facts = Facts({Agent("a", kThree, "Discrete(2)")});
  facts.env_steps_per_s = 375;
  EXPECT_THAT(Read(facts), HasSubstr("\nevaluation: {episodes: 10} "));
  facts.spec.max_episode_steps = 1000;
  EXPECT_THAT(Read(facts), HasSubstr("\nevaluation: {episodes: 22} "));
}

TEST(StarterConfigTest, AKindOfAgentsHasItsPolicy) {
  const StarterFacts facts = Facts({Agent("wolf_0", kThree, "Discrete(2)"), Agent("wolf_1", kThree, "Discrete(2)"),
                                    Agent("sheep_0", kFive, "Discrete(2)"), Agent("dog", kFive, "Discrete(3)")});
  const std::vector<AgentKind> kinds = AgentKinds(facts.spec);
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_EQ(kinds[0].policy, "wolf");
  EXPECT_THAT(kinds[0].mapping, ElementsAre("wolf*"));
  EXPECT_THAT(kinds[0].agents, ElementsAre("wolf_0", "wolf_1"));
  EXPECT_THAT(kinds[1].mapping, ElementsAre("sheep_0"));
  EXPECT_THAT(Read(facts),
              HasSubstr("  policies: [\"wolf\", \"sheep\", \"dog\"]\n"
                        "  policy_mapping: {\"wolf*\": \"wolf\", \"sheep_0\": \"sheep\", \"dog\": \"dog\"}\n"));
}

// Of agents that are named alike and shaped differently no glob may take another kind's.
TEST(StarterConfigTest, AGlobTakesNoOtherKindsAgents) {
  const StarterFacts facts = Facts({Agent("a_0", kThree, "Discrete(2)"), Agent("a_1", kFive, "Discrete(2)"),
                                    Agent("a_2", kThree, "Discrete(2)"), Agent("7", kThree, "Discrete(9)")});
  const std::vector<AgentKind> kinds = AgentKinds(facts.spec);
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_THAT(kinds[0].mapping, ElementsAre("a_0", "a_2"));
  EXPECT_EQ(kinds[0].policy, "a");
  EXPECT_THAT(kinds[1].mapping, ElementsAre("a_1"));
  EXPECT_EQ(kinds[1].policy, "a_1");
  EXPECT_EQ(kinds[2].policy, "7");
  Read(facts);
}

TEST(StarterConfigTest, FactsAreTold) {
  StarterFacts facts = Facts({Agent("a_0", kThree, "Discrete(2)"), Agent("a_1", kThree, "Discrete(2)")});
  facts.spec.possible_agents[0].has_action_mask = facts.spec.possible_agents[1].has_action_mask = true;
  facts.env_steps_per_s = 12345.6;
  EXPECT_EQ(FactsText(facts),
            "2 agents: a_0, a_1\n  observations  Box(-1, 1, [3])\n  actions       Discrete(2), some masked\n"
            "  algorithms    a2c, appo, impala, ppo, pqn\n"
            "no episode of random play ended, 12,345 env steps/s with random actions on one core\n");
  facts.episode_length = 25;
  EXPECT_THAT(FactsText(facts), HasSubstr("\nepisodes of 25.0 env steps, 12,345 env steps/s"));
}

}  // namespace
}  // namespace troupe::cli
