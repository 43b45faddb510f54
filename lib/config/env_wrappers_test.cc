// What stands between an environment and its policies, from YAML: groups, time limit, rewards, frames, keys of Dicts.

#include <string>

#include "lib/config/testing/resolve_fixture.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using EnvWrappersTest = ResolveFixture;

TEST_F(EnvWrappersTest, GroupsAreTheAgentsThatPoliciesPlay) {
  const ResolvedRun run = Resolve(R"(
env:
  name: mixed
  groups:
    wolves: [wolf_1, wolf_0]
algorithm: {name: ippo}
multi_agent: {policy_mapping: {wolves: pack, "*": prey}, policies: [pack, prey]}
)");
  EXPECT_EQ(run.agent_ids(), (std::vector<std::string>{"wolves", "sheep"}));
  EXPECT_EQ(run.policies[0].action_space.ToString(), "Tuple(Discrete(5), Discrete(5))");
  EXPECT_EQ(run.policies[0].observation_size(), 6);
  EXPECT_THAT(run.env_spec.info_columns, ElementsAre("individual_rewards/wolf_1", "individual_rewards/wolf_0"));
  EXPECT_EQ(run.env.wrappers.groups[0].agents, (std::vector<std::string>{"wolf_1", "wolf_0"}));
}

TEST_F(EnvWrappersTest, TheLongFormHasSpaces) {
  const char kYaml[] = R"yaml(
env:
  name: mixed
  groups:
    wolves:
      agents: [wolf_0, wolf_1]
      obs_space: "Tuple(Box(-9, 9, [3]), Box(-9, 9, [3]))"
      act_space: "Tuple(Discrete(5), Discrete(5))"
algorithm: {use_parameter_sharing: false}
)yaml";
  const ResolvedRun run = Resolve(kYaml);
  EXPECT_EQ(run.env_spec.possible_agents[0].observation_space.ToString(), "Tuple(Box(-9, 9, [3]), Box(-9, 9, [3]))");
  // One text for one meaning, which reads back.
  const RunConfig config = *RunConfig::FromYaml(kYaml, "run.yaml");
  EXPECT_THAT(config.ToYaml(),
              HasSubstr("  groups:\n    wolves: {agents: [wolf_0, wolf_1], obs_space: \"Tuple(Box(-9, 9, [3]), "
                        "Box(-9, 9, [3]))\", act_space: \"Tuple(Discrete(5), Discrete(5))\"}\n"));
  EXPECT_EQ(*RunConfig::FromYaml(config.ToYaml(), "again.yaml"), config);
}

TEST_F(EnvWrappersTest, RewardsFramesAndTimeLimit) {
  const char kYaml[] =
      "env: {name: state, max_episode_steps: 50, reward_scale: 0.1, reward_clip: 2, frame_stack: 4, state_key: \"\"}";
  const ResolvedRun run = Resolve(kYaml);
  EXPECT_EQ(run.env_spec.max_episode_steps, 50);
  EXPECT_EQ(run.env_spec.possible_agents[0].observation_space.ToString(), "Box(-1, 1, [4, 3])");
  EXPECT_EQ(run.env.wrappers.rewards.scale, 0.1);
  EXPECT_EQ(run.env.wrappers.rewards.low, -2);
  EXPECT_EQ(run.env.wrappers.rewards.high, 2);
  EXPECT_EQ(run.env.wrappers.dict_keys.state, "");
  EXPECT_EQ(run.env.wrappers.dict_keys.action_mask, "action_mask");
  const RunConfig config = *RunConfig::FromYaml(kYaml, "run.yaml");
  EXPECT_THAT(config.ToYaml(), HasSubstr("  reward_clip: [-2.0, 2.0]\n"));
  EXPECT_EQ(*RunConfig::FromYaml(config.ToYaml(), "again.yaml"), config);
  EXPECT_EQ(Resolve("env: {name: state, reward_clip: [-1, 0]}").env.wrappers.rewards.high, 0);
  EXPECT_EQ(Resolve("env: {name: state, reward_clip: 3}", {"env.reward_clip=none"}).env.wrappers.rewards.high,
            INFINITY);
}

TEST_F(EnvWrappersTest, AgentsMayObserveTheirLastStep) {
  const ResolvedRun run = Resolve("env: {name: team, previous_action: true, frame_stack: 2}");
  EXPECT_TRUE(run.env.wrappers.previous_step.action);
  EXPECT_FALSE(run.env.wrappers.previous_step.reward);
  const ResolvedRun before = Resolve("env: {name: team, frame_stack: 2}");
  EXPECT_FALSE(before.env.wrappers.previous_step.action);
  EXPECT_EQ(run.policies[0].observation_size(),
            before.policies[0].observation_size() + before.policies[0].action_space.mask_size());
  EXPECT_TRUE(Resolve("env: {name: team, previous_reward: true}").env.wrappers.previous_step.reward);
  EXPECT_THAT(ErrorOf("env: {name: team, previous_action: 2}"), HasSubstr("env.previous_action: got 2, expected true"));
}

TEST_F(EnvWrappersTest, KeysOfDictsAreStatesAndMasks) {
  const space::Space dict =
      *space::ParseSpace("Dict{action_mask: MultiBinary(5), observation: Box(-1, 1, [3]), state: Box(-1, 1, [7])}");
  Add(Spec("dict", {Agent("a", dict, *space::Space::Discrete(5)), Agent("b", dict, *space::Space::Discrete(5))}));
  const ResolvedRun run = Resolve("env: {name: dict}\nalgorithm: {use_global_state: true}");
  EXPECT_EQ(run.policies[0].observation_size(), 3);
  EXPECT_TRUE(run.policies[0].has_action_mask);
  EXPECT_EQ(run.policies[0].critic_state_size(), 7);
  EXPECT_EQ(run.schema.agent_state_size, 7);
  EXPECT_THAT(ErrorOf("env: {name: dict, action_mask_key: observation}"),
              HasSubstr("run.yaml:1:6: env: agent \"a\" observes "));
  EXPECT_THAT(ErrorOf("env: {name: dict, action_mask_key: observation}"),
              HasSubstr("its key \"observation\" has 3 elements, expected 5"));
}

TEST_F(EnvWrappersTest, AnOverrideReplacesAGroupAndKeepsTheOthers) {
  const ResolvedRun run = Resolve(
      "env: {name: team, groups: {g: [agent_0], h: [agent_1]}}\n"
      "algorithm: {use_parameter_sharing: false}",
      {"env.groups.g=[agent_2]", "env.max_episode_steps=9"});
  ASSERT_EQ(run.env.wrappers.groups.size(), 2u);
  EXPECT_THAT(run.env.wrappers.groups[0].agents, ElementsAre("agent_2"));
  EXPECT_THAT(run.env.wrappers.groups[1].agents, ElementsAre("agent_1"));
  EXPECT_EQ(run.agent_ids(), (std::vector<std::string>{"agent_0", "h", "g"}));
}

TEST_F(EnvWrappersTest, ErrorsNameTheKey) {
  const auto error = [this](const std::string& keys) { return ErrorOf("env: {name: team, " + keys + "}"); };
  EXPECT_EQ(error("groups: {g: [agent_7]}"),
            "run.yaml:1:27: env.groups: group \"g\": there is no agent \"agent_7\"; the nearest is \"agent_0\"");
  EXPECT_THAT(error("groups: {g: [agent_0, agent_0]}"), HasSubstr("\"env.groups.g.agent_0\" is there twice"));
  EXPECT_THAT(error("groups: {g: [agent_0], h: [agent_0]}"), HasSubstr("\"agent_0\" is in group \"g\", too"));
  EXPECT_THAT(error("groups: {g: []}"), HasSubstr("env.groups.g: got a list of 0, expected a list of 1 to 1024 agent"));
  EXPECT_THAT(error("groups: {g: {obs_space: \"Discrete(2)\"}}"), HasSubstr("env.groups.g.agents is missing"));
  EXPECT_THAT(error("groups: {g: {agents: [agent_0], spaces: 3}}"),
              HasSubstr("unknown key \"env.groups.g.spaces\"; a group may have agents, obs_space and act_space"));
  EXPECT_THAT(error("groups: {g: {agents: [agent_0], obs_space: Box}}"), HasSubstr("env.groups.g.obs_space: space"));
  EXPECT_THAT(error("groups: [g]"), HasSubstr("env.groups: got a list, expected a mapping from names of groups"));
  EXPECT_EQ(error("max_episode_steps: -1"),
            "run.yaml:1:38: env.max_episode_steps: got -1, expected an integer >= 0; the default is 0");
  EXPECT_EQ(error("reward_scale: 0"),
            "run.yaml:1:33: env.reward_scale: got a reward scale of 0, expected a number other than 0");
  for (const char* clip : {"0", "-1", "[1, 2]", "[0, 0]", "[1]", "x", "{a: 1}"}) {
    EXPECT_THAT(error(std::string("reward_clip: ") + clip), HasSubstr("env.reward_clip: got")) << clip;
  }
  EXPECT_EQ(error("frame_stack: 65"),
            "run.yaml:1:32: env.frame_stack: got 65, expected an integer in [1, 64]; the default is 1");
}

}  // namespace
}  // namespace troupe::config
