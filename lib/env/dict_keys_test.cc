#include "lib/env/dict_keys.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "lib/env/conformance.h"
#include "lib/env/testing/call.h"
#include "lib/env/testing/scripted_env.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::env {
namespace {

using testing::Called;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScriptedEnv;
using testing::SmallSpec;

space::Space Parsed(const char* text) { return *space::ParseSpace(text); }

/// Two agents that observe Dict{action_mask, observation, state}; three steps. Flat: 3 + 2 + 2 elements.
EnvSpec DictSpec(const char* observation = "Box(-1, 1, [2])") {
  EnvSpec spec = SmallSpec(2);
  for (AgentSpec& agent : spec.possible_agents) {
    agent.observation_space =
        Parsed(absl::StrCat("Dict{action_mask: MultiBinary(3), observation: ", std::string(observation),
                            ", state: Box(0, 255, [2], uint8)}")
                   .c_str());
  }
  spec.max_episode_steps = 3;
  return spec;
}

std::unique_ptr<MultiAgentEnv> DictRows(EnvSpec spec = DictSpec(), float observation = 0.5f) {
  return std::make_unique<ScriptedEnv>(std::move(spec), [observation](int64_t t, ActionRows, StepWriter& out) {
    for (int32_t slot = 0; slot < 2; ++slot) {
      float* row = out.ObserveFloat(AgentSlot(slot));
      *row++ = 1;
      *row++ = 0;
      *row++ = static_cast<float>(slot);
      *row++ = observation;
      *row++ = observation;
      *row++ = static_cast<float>(t);
      *row++ = static_cast<float>(slot);
    }
    if (t == 3) out.TerminateAll();
    return absl::OkStatus();
  });
}

TEST(DictKeysTest, StateAndMaskLeaveTheObservation) {
  Called env(*WithDictKeys(DictRows(), {}));
  EXPECT_EQ(env.spec().possible_agents[1].observation_space.ToString(), "Box(-1, 1, [2])");
  EXPECT_TRUE(env.spec().possible_agents[1].has_action_mask);
  EXPECT_EQ(env.spec().state_kind, StateKind::kPerAgent);
  EXPECT_EQ(env.spec().state_space.ToString(), "Box(0, 255, [2])") << "states are floats";
  ASSERT_TRUE(env.Reset().ok());
  EXPECT_THAT(env.Row(1), ElementsAre(0.5f, 0.5f));
  EXPECT_THAT(env.Mask(0), ElementsAre(1, 0, 0));
  EXPECT_THAT(env.Mask(1), ElementsAre(1, 0, 1));
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.State(1), ElementsAre(1, 1));
  const ConformanceReport report = CheckConformance([] { return *WithDictKeys(DictRows(), {}); });
  EXPECT_TRUE(report.ok()) << report.ToString();
}

TEST(DictKeysTest, OneAgentAloneObservesItsState) {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].observation_space = Parsed("Dict{pixels: Box(-1, 1, [2]), state: Box(-1, 1, [1])}");
  auto env = *WithDictKeys(std::make_unique<ScriptedEnv>(spec,
                                                         [](int64_t, ActionRows, StepWriter& out) {
                                                           std::fill_n(out.ObserveFloat(AgentSlot(0)), 3, 0.0f);
                                                           return absl::OkStatus();
                                                         }),
                           {});
  EXPECT_EQ(env->spec().ToString(), spec.ToString());
}

TEST(DictKeysTest, OnlyTheKeysThatAreAskedFor) {
  const auto with = [](DictKeys keys) { return (*WithDictKeys(DictRows(), keys))->spec(); };
  EnvSpec spec = with({.state = "", .action_mask = "action_mask"});
  EXPECT_EQ(spec.possible_agents[0].observation_space.ToString(),
            "Dict{observation: Box(-1, 1, [2]), state: Box(0, 255, [2], uint8)}");
  EXPECT_EQ(spec.state_kind, StateKind::kNone);
  spec = with({.state = "state", .action_mask = ""});
  EXPECT_FALSE(spec.possible_agents[0].has_action_mask);
  EXPECT_EQ(spec.possible_agents[0].observation_space.flat_size(), 5);
  EXPECT_EQ(with({.state = "", .action_mask = ""}).ToString(), DictSpec().ToString());
}

TEST(DictKeysTest, WhatTheEnvironmentGivesItselfStands) {
  EnvSpec spec = DictSpec();
  spec.state_kind = StateKind::kPerEnv;
  spec.state_space = *space::Space::Box(0, 1, {1});
  for (AgentSpec& agent : spec.possible_agents) agent.has_action_mask = true;
  Called env(*WithDictKeys(std::make_unique<ScriptedEnv>(spec,
                                                         [](int64_t, ActionRows, StepWriter& out) {
                                                           float* const row = out.ObserveFloat(AgentSlot(0));
                                                           for (int i = 0; i < 7; ++i) row[i] = 1;
                                                           uint8_t* const mask = out.ActionMask(AgentSlot(0));
                                                           mask[0] = mask[2] = 0;
                                                           mask[1] = 1;
                                                           *out.State(AgentSlot(0)) = 0.5f;
                                                           return absl::OkStatus();
                                                         }),
                           {}));
  ASSERT_TRUE(env.Reset().ok());
  EXPECT_THAT(env.State(0), ElementsAre(0.5f));
  EXPECT_THAT(env.Mask(0), ElementsAre(0, 1, 0));
  EXPECT_THAT(env.Row(0), ElementsAre(1, 1));
}

TEST(DictKeysTest, ImagesStayBytes) {
  const char* const kImage = "Box(0, 255, [2, 1, 1], uint8)";
  Called env(*WithDictKeys(DictRows(DictSpec(kImage), 200), {}));
  EXPECT_EQ(env.spec().possible_agents[0].observation_space.ToString(), kImage);
  ASSERT_TRUE(env.Reset().ok());
  EXPECT_THAT(env.got().observation_uint8(0, 1), ElementsAre(200, 200));
  Called board(*WithDictKeys(DictRows(DictSpec("Box(0, 1, [2], uint8)"), 1), {}));
  EXPECT_EQ(board.spec().possible_agents[0].observation_space.ToString(), "Box(0, 1, [2], int32)") << "no image";
  ASSERT_TRUE(board.Reset().ok());
  EXPECT_THAT(board.Row(0), ElementsAre(1, 1));
  Called wrong(*WithDictKeys(DictRows(DictSpec(kImage), 256), {}));
  const absl::Status status = wrong.Reset({.env_id = base::EnvId(2)});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("(env 2, episode 0), step 0: agent agent_0: observation element 0 is 256, expected a whole"));
}

TEST(DictKeysTest, WhatDoesNotFitIsRefused) {
  const auto error = [](const char* first, const char* second) {
    EnvSpec spec = SmallSpec(2);
    spec.possible_agents[0].observation_space = Parsed(first);
    spec.possible_agents[1].observation_space = Parsed(second);
    const auto env = WithDictKeys(std::make_unique<ScriptedEnv>(spec, nullptr), {});
    EXPECT_EQ(env.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(env.status().message());
  };
  EXPECT_THAT(error("Dict{state: Discrete(2)}", "Discrete(2)"), HasSubstr("no other key is there"));
  EXPECT_THAT(error("Dict{a: Discrete(2), action_mask: MultiBinary(2)}", "Discrete(2)"),
              HasSubstr("has 2 elements, expected 3, one for every category of Discrete(3)"));
  EXPECT_THAT(error("Dict{a: Discrete(2), state: Discrete(2)}", "Discrete(2)"),
              HasSubstr("agent \"agent_1\": key \"state\" of its observation is not there, expected Discrete(2)"));
  EXPECT_THAT(error("Dict{a: Discrete(2), state: Discrete(2)}", "Dict{a: Discrete(2), state: Discrete(3)}"),
              HasSubstr("is Discrete(3), expected Discrete(2) as of agent \"agent_0\""));
}

TEST(DictKeysTest, AMaskThatForbidsEverythingIsTheEnvironmentsError) {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].observation_space = Parsed("Dict{a: Box(0, 1, [1]), action_mask: MultiBinary(3)}");
  Called env(*WithDictKeys(std::make_unique<ScriptedEnv>(spec,
                                                         [](int64_t, ActionRows, StepWriter& out) {
                                                           float* const row = out.ObserveFloat(AgentSlot(0));
                                                           for (int i = 0; i < 4; ++i) row[i] = 0;
                                                           return absl::OkStatus();
                                                         }),
                           {}));
  EXPECT_EQ(EnvRuleOf(env.Reset()), EnvRule::kActionMask);
}

}  // namespace
}  // namespace troupe::env
