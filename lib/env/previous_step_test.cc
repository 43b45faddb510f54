#include "lib/env/previous_step.h"

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
using testing::ScriptedEnv;
using testing::SmallSpec;

constexpr PreviousStep kBoth = {.action = true, .reward = true};

/// agent_0 observes [t / 10, 0] always and gets t in two parts; agent_1 observes at even t and gets 5 in each step.
std::unique_ptr<MultiAgentEnv> TwoPaces() {
  EnvSpec spec = SmallSpec(2);
  spec.possible_agents[0].action_space = *space::ParseSpace("Tuple(Discrete(3, start=2), Box(-1, 1, [2]))");
  spec.max_episode_steps = 4;
  return std::make_unique<ScriptedEnv>(spec, [](int64_t t, ActionRows, StepWriter& out) {
    if (t > 0) {
      for (int part = 0; part < 2; ++part) out.AddReward(AgentSlot(0), 0.5f * static_cast<float>(t));
      out.AddReward(AgentSlot(1), 5);
    }
    float* const row = out.ObserveFloat(AgentSlot(0));
    row[0] = 0.1f * static_cast<float>(t);
    row[1] = 0;
    if (t % 2 == 0) testing::ObserveAs(out, 1, 1);
    if (t == 4) out.TruncateAll();
    return absl::OkStatus();
  });
}

TEST(PreviousStepTest, AgentsObserveTheirLastActionAndWhatItBrought) {
  Called env(*WithPreviousStep(TwoPaces(), kBoth));
  EXPECT_EQ(env.spec().possible_agents[0].observation_space.ToString(),
            "Box([-1, -1, 0, 0, 0, -inf, -inf, -inf], [1, 1, 1, 1, 1, inf, inf, inf], [8])");
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(env.Reset().ok());
    EXPECT_THAT(env.Row(0), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0)) << "nothing was done in this episode";
    EXPECT_THAT(env.Row(1), ElementsAre(1, 1, 0, 0, 0, 0));
    env.action(0)[0].i32 = 4;  // the third of its categories
    env.action(0)[1].f32 = 0.25f;
    env.action(0)[2].f32 = -0.5f;
    env.action(1)[0].i32 = 1;
    ASSERT_TRUE(env.Step().ok());
    EXPECT_THAT(env.Row(0), ElementsAre(0.1f, 0, 0, 0, 1, 0.25f, -0.5f, 1)) << "both parts of its reward";
    env.action(0)[0].i32 = 2;
    ASSERT_TRUE(env.Step().ok());
    EXPECT_THAT(env.Row(0), ElementsAre(0.2f, 0, 1, 0, 0, 0.25f, -0.5f, 2));
    EXPECT_THAT(env.Row(1), ElementsAre(1, 1, 0, 1, 0, 10)) << "its own decision, and the sum of two env steps";
    EXPECT_EQ(env.got().reward(0, 0), 2) << "the reward itself stays";
  }
}

TEST(PreviousStepTest, AnAgentThatReturnsHasDoneNothing) {
  const auto returning = [] {
    return std::make_unique<ScriptedEnv>(SmallSpec(2), [](int64_t t, ActionRows, StepWriter& out) {
      testing::ObserveAs(out, 0, 0);
      if (t == 1) {
        out.AddReward(AgentSlot(1), 7);
        out.TruncateAgent(AgentSlot(1));
      }
      if (t != 2) testing::ObserveAs(out, 1, 0);
      return absl::OkStatus();
    });
  };
  Called env(*WithPreviousStep(returning(), kBoth));
  ASSERT_TRUE(env.Reset().ok());
  env.action(1)[0].i32 = 1;
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(1), ElementsAre(0, 0, 0, 1, 0, 7)) << "its last look";
  ASSERT_TRUE(env.Step().ok());
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(1), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(PreviousStepTest, EitherAlone) {
  Called action(*WithPreviousStep(TwoPaces(), {.action = true}));
  ASSERT_TRUE(action.Reset().ok());
  action.action(0)[0].i32 = 3;
  action.action(1)[0].i32 = 2;
  ASSERT_TRUE(action.Step().ok());
  EXPECT_THAT(action.Row(0), ElementsAre(0.1f, 0, 0, 1, 0, 0, 0));
  Called reward(*WithPreviousStep(TwoPaces(), {.reward = true}));
  ASSERT_TRUE(reward.Reset().ok());
  reward.action(0)[0].i32 = 3;
  ASSERT_TRUE(reward.Step().ok());
  EXPECT_THAT(reward.Row(0), ElementsAre(0.1f, 0, 1));
}

TEST(PreviousStepTest, WhatComesBeforeAnAgentsFirstDecisionBelongsToNone) {
  Called env(*WithPreviousStep(std::make_unique<ScriptedEnv>(SmallSpec(2),
                                                             [](int64_t t, ActionRows, StepWriter& out) {
                                                               if (t > 0) out.AddReward(AgentSlot(1), 1);
                                                               testing::ObserveAs(out, 0, 0);
                                                               if (t >= 2) testing::ObserveAs(out, 1, 0);
                                                               return absl::OkStatus();
                                                             }),
                               {.reward = true}));
  ASSERT_TRUE(env.Reset().ok());
  ASSERT_TRUE(env.Step().ok());
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(1), ElementsAre(0, 0, 0));
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(1), ElementsAre(0, 0, 1));
}

TEST(PreviousStepTest, OtherSpacesStandInATuple) {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].observation_space = *space::Space::Box(0, 255, {1, 2, 1}, tensor::DType::kUint8);
  const auto bytes = [&spec] {
    return std::make_unique<ScriptedEnv>(spec, [](int64_t t, ActionRows, StepWriter& out) {
      auto* const row = static_cast<uint8_t*>(out.Observe(AgentSlot(0)));
      row[0] = static_cast<uint8_t>(200 + t);
      row[1] = 7;
      if (t == 3) out.TerminateAll();
      return absl::OkStatus();
    });
  };
  Called env(*WithPreviousStep(bytes(), kBoth));
  EXPECT_EQ(env.spec().possible_agents[0].observation_space.ToString(),
            "Tuple(Box(0, 255, [1, 2, 1], uint8), Box(0, 1, [3]), Box(-inf, inf, [1]))");
  ASSERT_TRUE(env.Reset().ok());
  env.action(0)[0].i32 = 1;
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(0), ElementsAre(201, 7, 0, 1, 0, 0));
  const ConformanceReport report = CheckConformance([&] { return *WithPreviousStep(bytes(), kBoth); });
  EXPECT_TRUE(report.ok()) << report.ToString();
}

TEST(PreviousStepTest, KeepsTheContract) {
  const ConformanceReport report = CheckConformance([] { return *WithPreviousStep(TwoPaces(), kBoth); });
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_EQ((*WithPreviousStep(TwoPaces(), {}))->spec().ToString(), TwoPaces()->spec().ToString());
  EnvSpec large = SmallSpec(1);
  large.possible_agents[0].observation_space = *space::Space::Box(0, 1, {space::Space::kMaxElements});
  EXPECT_EQ(WithPreviousStep(std::make_unique<ScriptedEnv>(large, nullptr), kBoth).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::env
