#include "lib/env/agent_groups.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/env/conformance.h"
#include "lib/env/slot_buffers.h"
#include "lib/env/testing/call.h"
#include "lib/env/testing/scripted_env.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::env {
namespace {

using testing::Called;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ObserveAs;
using testing::ScriptedEnv;
using testing::SmallSpec;

constexpr float kNone = -9;  // no row

/// What one call brings: values of observations (kNone: none), rewards, and who ends.
struct Call {
  std::vector<float> observe;
  std::map<int32_t, float> rewards = {};
  std::vector<int32_t> terminate = {}, truncate = {};
  bool terminate_all = false;
};

/// Follows the calls; the actions it got are in `acted`.
std::unique_ptr<MultiAgentEnv> Play(EnvSpec spec, std::vector<Call> calls, std::string* acted = nullptr) {
  const EnvSpec copy = spec;
  return std::make_unique<ScriptedEnv>(std::move(spec), [=](int64_t t, ActionRows actions, StepWriter& out) {
    if (acted != nullptr) {
      acted->clear();
      for (const space::ActionWord* row : actions)
        absl::StrAppend(acted, row == nullptr ? "-" : absl::StrCat(row->i32));
    }
    const Call& call = calls[static_cast<size_t>(t)];
    for (size_t i = 0; i < call.observe.size(); ++i) {
      const int32_t slot = static_cast<int32_t>(i);
      // Each reward before the agent's own observation, as the contract says, and after those of others.
      if (call.rewards.count(slot) != 0) out.AddReward(AgentSlot(slot), call.rewards.at(slot));
      if (call.observe[i] == kNone) continue;
      ObserveAs(out, slot, call.observe[i]);
      if (copy.possible_agents[i].has_action_mask) {
        uint8_t* const mask = out.ActionMask(AgentSlot(slot));
        mask[0] = 1;
        mask[1] = slot == 0;
        mask[2] = slot == 1;
      }
      if (copy.has_agent_mask) out.SetAgentMask(AgentSlot(slot), call.observe[i] > 0);
      if (copy.state_kind == StateKind::kPerAgent) *out.State(AgentSlot(slot)) = static_cast<float>(slot + 1);
      if (!copy.info_columns.empty()) out.SetInfo(AgentSlot(slot), 0, static_cast<double>(slot));
    }
    if (copy.state_kind == StateKind::kPerEnv) *out.State(AgentSlot(0)) = static_cast<float>(t);
    for (const int32_t slot : call.terminate) out.TerminateAgent(AgentSlot(slot));
    for (const int32_t slot : call.truncate) out.TruncateAgent(AgentSlot(slot));
    if (call.terminate_all) out.TerminateAll();
    return absl::OkStatus();
  });
}

std::unique_ptr<MultiAgentEnv> Grouped(std::unique_ptr<MultiAgentEnv> env, std::vector<AgentGroup> groups) {
  auto grouped = WithAgentGroups(std::move(env), std::move(groups));
  EXPECT_TRUE(grouped.ok()) << grouped.status();
  return *std::move(grouped);
}

const std::vector<AgentGroup> kPair = {{"pair", {"agent_2", "agent_0"}, {}, {}}};

TEST(AgentGroupsTest, MembersActAsOneInTheOrderOfTheGroup) {
  std::string acted;
  Called env(Grouped(Play(SmallSpec(3),
                          {{{0.1f, 0.2f, 0.3f}},
                           {{0.4f, kNone, 0.6f}, {{0, 1.0f}, {2, 10.0f}}},
                           {{kNone, 0.5f, kNone}, {{0, 2.0f}, {1, 7.0f}}},
                           {{0.7f, 0.7f, 0.7f}, {{2, -1.0f}}, {}, {}, true}},
                          &acted),
                     kPair));
  const EnvSpec& spec = env.spec();
  ASSERT_EQ(spec.num_agents(), 2);
  EXPECT_EQ(spec.possible_agents[0].id.value(), "pair") << "where its first member stood";
  EXPECT_EQ(spec.possible_agents[1].id.value(), "agent_1");
  EXPECT_EQ(spec.possible_agents[0].observation_space.ToString(), "Tuple(Box(-1, 1, [2]), Box(-1, 1, [2]))");
  EXPECT_EQ(spec.possible_agents[0].action_space.ToString(), "Tuple(Discrete(3), Discrete(3))");
  EXPECT_THAT(spec.info_columns, ElementsAre("individual_rewards/agent_2", "individual_rewards/agent_0"));

  ASSERT_TRUE(env.Reset().ok());
  EXPECT_THAT(env.Row(0), ElementsAre(0.3f, 0.3f, 0.1f, 0.1f));
  EXPECT_THAT(env.Row(1), ElementsAre(0.2f, 0.2f));
  env.action(0)[0].i32 = 2;  // agent_2
  env.action(0)[1].i32 = 1;  // agent_0
  env.action(1)[0].i32 = 0;
  ASSERT_TRUE(env.Step().ok());
  EXPECT_EQ(acted, "102");
  EXPECT_EQ(env.got().reward(0, 0), 11);
  EXPECT_THAT(env.got().infos(0, 0), ElementsAre(10, 1));
  EXPECT_FALSE(env.got().observed(0, 1));

  ASSERT_TRUE(env.Step().ok());
  EXPECT_EQ(acted, "1-2") << "who stands alone waits alone";
  EXPECT_FALSE(env.got().observed(0, 0)) << "nobody of the group is ready";
  EXPECT_EQ(env.got().reward(0, 0), 2);
  EXPECT_EQ(env.got().reward(0, 1), 7);
  ASSERT_TRUE(env.Step().ok());
  EXPECT_EQ(acted, "-0-");
  EXPECT_EQ(env.got().reward(0, 0), -1) << "a delayed reward reaches the group's pending decision";
  EXPECT_TRUE(env.got().all_terminated(0));
  EXPECT_THAT(env.Row(0), ElementsAre(0.7f, 0.7f, 0.7f, 0.7f));
}

TEST(AgentGroupsTest, APartlyReadyGroupIsAnErrorOfItsEpisode) {
  Called env(Grouped(Play(SmallSpec(3), {{{0.1f, 0.2f, 0.3f}}, {{0.1f, 0.2f, kNone}}}), kPair));
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(env.Reset({.env_id = base::EnvId(4), .episode = 1}).ok());
    const absl::Status status = env.Step();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("environment test/scripted (env 4, episode 1), step 1: group \"pair\" is partly ready: "
                          "agent_0 is, agent_2 is not; expected all members that are not done at the same time"));
    EXPECT_FALSE(env.Step().ok()) << "only Reset may follow";
  }
  const auto bare = Grouped(Play(SmallSpec(3), {{{0.1f, 0.2f, kNone}}}), kPair);
  SlotBuffers buffers(bare->spec(), 1);
  EXPECT_EQ(EnvRuleOf(bare->Reset({}, buffers.BeginStep(0))), EnvRule::kObservedAgents);
}

TEST(AgentGroupsTest, AGroupIsDoneWhenAllItsMembersAre) {
  const std::vector<Call> begin = {{{0.1f, 0.2f, 0.3f}}};
  const auto play = [&](std::vector<Call> rest) {
    std::vector<Call> calls = begin;
    calls.insert(calls.end(), rest.begin(), rest.end());
    auto env = std::make_unique<Called>(Grouped(Play(SmallSpec(3), calls), kPair));
    EXPECT_TRUE(env->Reset().ok());
    return env;
  };
  // Both at once: terminated, with what was observed last.
  auto env = play({{{0.5f, 0.2f, 0.6f}, {{0, 1.0f}}, {0, 2}}});
  ASSERT_TRUE(env->Step().ok());
  EXPECT_TRUE(env->got().terminated(0, 0));
  EXPECT_EQ(env->got().reward(0, 0), 1);
  EXPECT_THAT(env->Row(0), ElementsAre(0.6f, 0.6f, 0.5f, 0.5f));
  // One terminated, one cut short: the group is truncated, for its value goes on. Zeros for who sees nothing.
  env = play({{{kNone, 0.2f, 0.6f}, {}, {0}, {2}}});
  ASSERT_TRUE(env->Step().ok());
  EXPECT_FALSE(env->got().terminated(0, 0));
  EXPECT_TRUE(env->got().truncated(0, 0));
  EXPECT_THAT(env->Row(0), ElementsAre(0.6f, 0.6f, 0, 0));
  // One after the other, the second while it waits: done with the second.
  env = play({{{kNone, 0.2f, kNone}, {}, {0}}, {{kNone, 0.2f, kNone}, {{2, 3.0f}}, {2}}});
  ASSERT_TRUE(env->Step().ok());
  EXPECT_FALSE(env->got().done(0, 0));
  ASSERT_TRUE(env->Step().ok());
  EXPECT_TRUE(env->got().terminated(0, 0));
  EXPECT_EQ(env->got().reward(0, 0), 3);
}

TEST(AgentGroupsTest, AMemberThatIsDoneIsInactive) {
  EnvSpec spec = SmallSpec(3);
  spec.possible_agents[0].has_action_mask = spec.possible_agents[2].has_action_mask = true;
  spec.has_agent_mask = true;
  std::string acted;
  Called env(Grouped(Play(spec,
                          {{{0.1f, 0.2f, 0.3f}},
                           {{0.5f, 0.2f, 0.6f}, {{0, 1.0f}}, {0}},
                           {{kNone, 0.2f, 0.7f}, {{2, 2.0f}}},
                           {{kNone, 0.2f, kNone}},
                           {{kNone, 0.2f, 0.8f}, {{2, 3.0f}}, {2}}},
                          &acted),
                     kPair));
  ASSERT_TRUE(env.Reset().ok());
  ASSERT_TRUE(env.Step().ok());
  EXPECT_FALSE(env.got().done(0, 0));
  EXPECT_THAT(env.Row(0), ElementsAre(0.6f, 0.6f, 0.5f, 0.5f)) << "with what it observed last";
  EXPECT_THAT(env.Mask(0), ElementsAre(1, 0, 0, 1, 0, 0)) << "it has one choice";
  ASSERT_TRUE(env.Step().ok());
  EXPECT_EQ(acted[0], '-') << "who is done does not act";
  EXPECT_NE(acted[2], '-');
  EXPECT_THAT(env.Row(0), ElementsAre(0.7f, 0.7f, 0, 0));
  EXPECT_TRUE(env.got().agent_mask(0, 0));
  EXPECT_EQ(env.got().reward(0, 0), 2);
  ASSERT_TRUE(env.Step().ok()) << "the others may wait";
  EXPECT_FALSE(env.got().observed(0, 0));
  ASSERT_TRUE(env.Step().ok());
  EXPECT_TRUE(env.got().terminated(0, 0));
  EXPECT_EQ(env.got().reward(0, 0), 3);
}

TEST(AgentGroupsTest, MembersAndGroupsMayReturn) {
  std::string acted;
  Called env(Grouped(Play(SmallSpec(3),
                          {{{0.1f, 0.2f, 0.3f}},
                           {{kNone, 0.2f, 0.6f}, {}, {0}},
                           {{0.4f, 0.2f, 0.7f}},
                           {{0.5f, 0.2f, 0.7f}, {}, {0, 2}},
                           {{kNone, 0.2f, kNone}},
                           {{0.8f, 0.2f, 0.9f}},
                           {{0.8f, 0.2f, 0.9f}}},
                          &acted),
                     kPair));
  ASSERT_TRUE(env.Reset().ok());
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(0), ElementsAre(0.6f, 0.6f, 0, 0));
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(0), ElementsAre(0.7f, 0.7f, 0.4f, 0.4f)) << "the member is back";
  ASSERT_TRUE(env.Step().ok());
  EXPECT_NE(acted[0], '-');
  EXPECT_TRUE(env.got().terminated(0, 0));
  ASSERT_TRUE(env.Step().ok());
  EXPECT_FALSE(env.got().observed(0, 0));
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(0), ElementsAre(0.9f, 0.9f, 0.8f, 0.8f)) << "the group is back";
  ASSERT_TRUE(env.Step().ok());
  EXPECT_NE(acted[0], '-');
  EXPECT_NE(acted[2], '-');
}

TEST(AgentGroupsTest, MasksStatesAndInfosOfTheMembers) {
  EnvSpec spec = SmallSpec(3);
  spec.possible_agents[0].has_action_mask = spec.possible_agents[2].has_action_mask = true;
  spec.state_kind = StateKind::kPerAgent;
  spec.state_space = *space::Space::Box(1, 3, {1});
  spec.has_agent_mask = true;
  spec.info_columns = {"speed"};
  Called env(Grouped(Play(spec, {{{0, 0, 0.3f}}, {{0, 0.5f, 0}}}), kPair));
  ASSERT_TRUE(env.Reset().ok());
  EXPECT_THAT(env.Mask(0), ElementsAre(1, 0, 0, 1, 1, 0)) << "agent_2's, then agent_0's";
  EXPECT_EQ(env.spec().state_space.ToString(), "Box(-inf, inf, [2])");
  EXPECT_THAT(env.State(0), ElementsAre(3, 1));
  EXPECT_THAT(env.State(1), ElementsAre(2, 0)) << "zeros to the size of the largest group";
  EXPECT_TRUE(env.got().agent_mask(0, 0)) << "one member is active";
  EXPECT_FALSE(env.got().agent_mask(0, 1));
  EXPECT_THAT(env.spec().info_columns,
              ElementsAre("speed", "individual_rewards/agent_2", "individual_rewards/agent_0"));
  ASSERT_TRUE(env.Step().ok());
  EXPECT_FALSE(env.got().agent_mask(0, 0));
  EXPECT_TRUE(env.got().agent_mask(0, 1));
  EXPECT_EQ(env.got().infos(0, 1)[0], 1);

  spec.state_kind = StateKind::kPerEnv;
  spec.state_space = *space::Space::Box(0, 9, {1});
  Called per_env(Grouped(Play(spec, {{{0, 0, 0.3f}}, {{0, 0.5f, 0}}}), kPair));
  ASSERT_TRUE(per_env.Reset().ok());
  ASSERT_TRUE(per_env.Step().ok());
  EXPECT_THAT(per_env.State(0), ElementsAre(1));
}

TEST(AgentGroupsTest, ImagesOfMembersBecomeFloats) {
  EnvSpec spec = SmallSpec(2);
  for (AgentSpec& agent : spec.possible_agents)
    agent.observation_space = *space::Space::Box(0, 255, {1}, tensor::DType::kUint8);
  Called env(Grouped(std::make_unique<ScriptedEnv>(spec,
                                                   [](int64_t, ActionRows, StepWriter& out) {
                                                     for (int32_t slot = 0; slot < 2; ++slot)
                                                       *static_cast<uint8_t*>(out.Observe(AgentSlot(slot))) = 200;
                                                     return absl::OkStatus();
                                                   }),
                     {{"all", {"agent_0", "agent_1"}, {}, {}}}));
  ASSERT_TRUE(env.Reset().ok());
  EXPECT_THAT(env.Row(0), ElementsAre(200, 200));
}

TEST(AgentGroupsTest, KeepsTheContract) {
  for (const StateKind kind : {StateKind::kPerEnv, StateKind::kPerAgent}) {
    const ConformanceReport report = CheckConformance([kind] {
      EnvSpec spec = SmallSpec(4);
      for (AgentSpec& agent : spec.possible_agents) agent.has_action_mask = true;
      spec.state_kind = kind;
      spec.state_space = *space::Space::Box(0, 9, {1});
      spec.has_agent_mask = true;
      spec.max_episode_steps = 3;
      return Grouped(Play(spec, {{{0.1f, 0.2f, 0.3f, kNone}},
                                 {{0.1f, kNone, 0.3f, 0.4f}, {{0, 1.0f}, {1, 1.0f}}},
                                 {{0.1f, 0.2f, 0.3f, 0.4f}, {{1, 2.0f}}, {0, 2}},
                                 {{kNone, kNone, kNone, 0.2f}, {{3, 1.0f}}, {1}, {}, true}}),
                     {{"pair", {"agent_2", "agent_0"}, {}, {}}, {"alone", {"agent_3"}, {}, {}}});
    });
    EXPECT_TRUE(report.ok()) << report.ToString();
  }
}

TEST(AgentGroupsTest, SpacesMayBeGivenAsTuples) {
  AgentGroup group{"all", {"agent_0", "agent_1"}, {}, {}};
  group.observation_space = *space::ParseSpace("Tuple(Box(-5, 5, [2]), Box(-5, 5, [2]))");
  group.action_space = *space::ParseSpace("Tuple(Discrete(3), MultiDiscrete([3]))");
  const auto spec = Grouped(Play(SmallSpec(2), {}), {group})->spec();
  EXPECT_EQ(spec.possible_agents[0].observation_space, group.observation_space);
  EXPECT_EQ(spec.possible_agents[0].action_space, group.action_space);
  const auto error = [&](const char* observation, const char* action) {
    AgentGroup bad = group;
    if (*observation != '\0') bad.observation_space = *space::ParseSpace(observation);
    if (*action != '\0') bad.action_space = *space::ParseSpace(action);
    return std::string(WithAgentGroups(Play(SmallSpec(2), {}), {bad}).status().message());
  };
  EXPECT_THAT(error("Box(-1, 1, [4])", ""),
              HasSubstr("group \"all\": obs_space is Box(-1, 1, [4]), expected a Tuple of "
                        "2 spaces, one for each member"));
  EXPECT_THAT(error("Tuple(Box(-1, 1, [2]), Box(-1, 1, [3]))", ""),
              HasSubstr("expected the size of Box(-1, 1, [2]) for \"agent_1\""));
  EXPECT_THAT(error("", "Tuple(Discrete(3))"), HasSubstr("act_space is Tuple(Discrete(3)), expected a Tuple of 2"));
  EXPECT_THAT(error("", "Tuple(Discrete(4), Discrete(3))"),
              HasSubstr("expected the actions of Discrete(3) for \"agent_0\""));
}

TEST(AgentGroupsTest, BadGroupsAreRefused) {
  const auto error = [](std::vector<AgentGroup> groups, bool one_mask = false) {
    EnvSpec spec = SmallSpec(3);
    spec.possible_agents[0].has_action_mask = one_mask;
    const auto env = WithAgentGroups(Play(spec, {}), std::move(groups));
    EXPECT_EQ(env.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(env.status().message());
  };
  EXPECT_THAT(error({{"g", {}, {}, {}}}), HasSubstr("group \"g\" is empty, expected agents"));
  EXPECT_THAT(error({{"g", {"agent_0", "agnet_1"}, {}, {}}}),
              HasSubstr("group \"g\": there is no agent \"agnet_1\"; the nearest is \"agent_1\""));
  EXPECT_THAT(error({{"g", {"agent_0", "agent_0"}, {}, {}}}), HasSubstr("group \"g\" has \"agent_0\" twice"));
  EXPECT_THAT(error({{"g", {"agent_0"}, {}, {}}, {"h", {"agent_1", "agent_0"}, {}, {}}}),
              HasSubstr("group \"h\": \"agent_0\" is in group \"g\", too, expected in one group only"));
  EXPECT_THAT(error({{"agent_2", {"agent_0", "agent_1"}, {}, {}}}), HasSubstr("agent 'agent_2' is there twice"));
  EXPECT_THAT(error({{"g", {"agent_0", "agent_1"}, {}, {}}}, true),
              HasSubstr("1 of 2 members have an action mask, expected all or none"));
}

}  // namespace
}  // namespace troupe::env
