#include "lib/env/env_spec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/testing/scripted_env.h"

namespace troupe::env {
namespace {

using ::testing::HasSubstr;
using testing::SmallSpec;

std::string Error(const EnvSpec& spec) { return std::string(spec.Validate().message()); }

TEST(EnvSpecTest, RefusesWhatIsNoSpec) {
  EXPECT_TRUE(SmallSpec(1).Validate().ok());
  EXPECT_TRUE(SmallSpec(1024).Validate().ok());
  EXPECT_THAT(Error(SmallSpec(0)), HasSubstr("has no agents"));
  EXPECT_THAT(Error(SmallSpec(1025)), HasSubstr("1025 agents, expected at most 1024"));

  EnvSpec spec = SmallSpec(2);
  spec.possible_agents[1].id = AgentId("agent_0");
  EXPECT_THAT(Error(spec), HasSubstr("agent 'agent_0' is there twice"));
  spec.possible_agents[1].id = AgentId("");
  EXPECT_THAT(Error(spec), HasSubstr("agent id is empty"));
  spec.possible_agents[1].id = AgentId(std::string(129, 'a'));
  EXPECT_THAT(Error(spec), HasSubstr("has an id of 129 bytes, expected at most 128"));
  spec.possible_agents[1].id = AgentId("__all__");
  EXPECT_THAT(Error(spec), HasSubstr("reserved"));

  spec = SmallSpec(2);
  spec.possible_agents[0].observation_space = {};
  EXPECT_THAT(Error(spec), HasSubstr("agent 'agent_0' has no observation space"));
  spec = SmallSpec(2);
  spec.possible_agents[1].action_space = {};
  EXPECT_THAT(Error(spec), HasSubstr("agent 'agent_1' has no action space"));
  spec = SmallSpec(2);
  spec.possible_agents[1].has_action_mask = true;
  spec.possible_agents[1].action_space = *space::Space::Box(0, 1, {2});
  EXPECT_THAT(Error(spec), HasSubstr("action mask but the continuous action space Box(0, 1, [2])"));

  spec = SmallSpec(2);
  spec.state_kind = StateKind::kPerEnv;
  EXPECT_THAT(Error(spec), HasSubstr("state kind is per_env and state space None"));
  spec.state_space = *space::Space::Box(0, 255, {2}, tensor::DType::kUint8);
  EXPECT_THAT(Error(spec), HasSubstr("expected float rows"));
  spec = SmallSpec(2);
  spec.info_columns = {"a", "a"};
  EXPECT_THAT(Error(spec), HasSubstr("info columns"));
  spec = SmallSpec(2);
  spec.max_episode_steps = -1;
  EXPECT_THAT(Error(spec), HasSubstr("max_episode_steps is -1"));
  spec = SmallSpec(2);
  spec.name = "";
  EXPECT_THAT(Error(spec), HasSubstr("name is empty"));
}

TEST(EnvSpecTest, FindsAgents) {
  EXPECT_EQ(SmallSpec(3).FindAgent(AgentId("agent_2"))->value(), 2);
  EXPECT_EQ(SmallSpec(3).FindAgent(AgentId("agent_3")).status().code(), absl::StatusCode::kNotFound);
}

TEST(EnvSpecTest, EveryPartIsInTheText) {
  const EnvSpec base = SmallSpec(2);
  std::vector<EnvSpec> others(9, base);
  others[0].name = "other";
  others[1].possible_agents[1].id = AgentId("b");
  others[2].possible_agents[1].observation_space = *space::Space::Box(-1, 1, {3});
  others[3].possible_agents[1].action_space = *space::Space::Discrete(4);
  others[4].possible_agents[1].has_action_mask = true;
  others[5].state_kind = StateKind::kPerEnv;
  others[6].has_agent_mask = true;
  others[7].info_columns = {"x"};
  others[8].max_episode_steps = 3;
  EXPECT_EQ(base.ToString(), SmallSpec(2).ToString());
  for (const EnvSpec& other : others) EXPECT_NE(other.ToString(), base.ToString()) << other.ToString();
}

}  // namespace
}  // namespace troupe::env
