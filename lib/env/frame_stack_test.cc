#include "lib/env/frame_stack.h"

#include <utility>
#include <vector>

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

/// agent_0 observes [t, 0.5] always; agent_1 the byte t at even t; five steps.
std::unique_ptr<MultiAgentEnv> Counting() {
  EnvSpec spec = SmallSpec(2);
  spec.possible_agents[0].observation_space = *space::Space::Box({0, -1}, {9, 1}, {2});
  spec.possible_agents[1].observation_space = *space::Space::Box(0, 255, {1, 1, 1}, tensor::DType::kUint8);
  spec.max_episode_steps = 5;
  return std::make_unique<ScriptedEnv>(spec, [](int64_t t, ActionRows, StepWriter& out) {
    float* const row = out.ObserveFloat(AgentSlot(0));
    row[0] = static_cast<float>(t);
    row[1] = 0.5f;
    if (t % 2 == 0) *static_cast<uint8_t*>(out.Observe(AgentSlot(1))) = static_cast<uint8_t>(10 + t);
    if (t == 5) out.TruncateAll();
    return absl::OkStatus();
  });
}

TEST(FrameStackTest, EachAgentSeesItsLastObservationsOldestFirst) {
  Called env(*WithFrameStack(Counting(), 3));
  EXPECT_EQ(env.spec().possible_agents[0].observation_space.ToString(),
            "Box([0, -1, 0, -1, 0, -1], [9, 1, 9, 1, 9, 1], [3, 2])");
  EXPECT_EQ(env.spec().possible_agents[1].observation_space.ToString(), "Box(0, 255, [3, 1, 1, 1], uint8)");
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(env.Reset().ok());
    EXPECT_THAT(env.Row(0), ElementsAre(0, 0.5f, 0, 0.5f, 0, 0.5f)) << "the first stands for those that are missing";
    EXPECT_THAT(env.got().observation_uint8(0, 1), ElementsAre(10, 10, 10));
    ASSERT_TRUE(env.Step().ok());
    EXPECT_THAT(env.Row(0), ElementsAre(0, 0.5f, 0, 0.5f, 1, 0.5f));
    ASSERT_TRUE(env.Step().ok());
    EXPECT_THAT(env.Row(0), ElementsAre(0, 0.5f, 1, 0.5f, 2, 0.5f));
    EXPECT_THAT(env.got().observation_uint8(0, 1), ElementsAre(10, 10, 12)) << "its own observations, not env steps";
    ASSERT_TRUE(env.Step().ok());
    EXPECT_THAT(env.Row(0), ElementsAre(1, 0.5f, 2, 0.5f, 3, 0.5f));
    ASSERT_TRUE(env.Step().ok());
    EXPECT_THAT(env.got().observation_uint8(0, 1), ElementsAre(10, 12, 14));
  }
}

TEST(FrameStackTest, AnAgentThatReturnsHasNoFramesOfBefore) {
  // agent_1 ends with a last look at step 1, and returns at step 3.
  const auto returning = [] {
    return std::make_unique<ScriptedEnv>(SmallSpec(2), [](int64_t t, ActionRows, StepWriter& out) {
      testing::ObserveAs(out, 0, 0);
      if (t == 1) out.TerminateAgent(AgentSlot(1));
      if (t != 2) testing::ObserveAs(out, 1, 0.1f * static_cast<float>(t));
      return absl::OkStatus();
    });
  };
  Called env(*WithFrameStack(returning(), 2));
  ASSERT_TRUE(env.Reset().ok());
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(1), ElementsAre(0, 0, 0.1f, 0.1f));
  ASSERT_TRUE(env.Step().ok());
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(1), ElementsAre(0.3f, 0.3f, 0.3f, 0.3f));
  ASSERT_TRUE(env.Step().ok());
  EXPECT_THAT(env.Row(1), ElementsAre(0.3f, 0.3f, 0.4f, 0.4f));
}

/// An image of 10 x 10 pixels of two channels; pixel p has p + 10 t and p + 10 t + 100 at time t.
std::unique_ptr<MultiAgentEnv> Pictures() {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].observation_space = *space::Space::Box(0, 255, {10, 10, 2}, tensor::DType::kUint8);
  spec.max_episode_steps = 5;
  return std::make_unique<ScriptedEnv>(spec, [](int64_t t, ActionRows, StepWriter& out) {
    auto* const row = static_cast<uint8_t*>(out.Observe(AgentSlot(0)));
    for (int64_t p = 0; p < 100; ++p) {
      row[2 * p] = static_cast<uint8_t>(p + 10 * t);
      row[2 * p + 1] = static_cast<uint8_t>(p + 10 * t + 100);
    }
    if (t == 5) out.TruncateAll();
    return absl::OkStatus();
  });
}

TEST(FrameStackTest, FramesOfAnImageAreChannels) {
  Called env(*WithFrameStack(Pictures(), 3));
  EXPECT_EQ(env.spec().possible_agents[0].observation_space.ToString(), "Box(0, 255, [10, 10, 6], uint8)");
  const auto pixel = [&env](size_t p) { return env.got().observation_uint8(0, 0).subspan(6 * p, 6); };
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(env.Reset().ok());
    EXPECT_THAT(pixel(0), ElementsAre(0, 100, 0, 100, 0, 100));
    EXPECT_THAT(pixel(99), ElementsAre(99, 199, 99, 199, 99, 199));
    ASSERT_TRUE(env.Step().ok());
    EXPECT_THAT(pixel(3), ElementsAre(3, 103, 3, 103, 13, 113));
    ASSERT_TRUE(env.Step().ok());
    ASSERT_TRUE(env.Step().ok());
    EXPECT_THAT(pixel(3), ElementsAre(13, 113, 23, 123, 33, 133)) << "the oldest first";
  }
  const ConformanceReport report = CheckConformance([] { return *WithFrameStack(Pictures(), 4); });
  EXPECT_TRUE(report.ok()) << report.ToString();
}

TEST(FrameStackTest, OtherSpacesBecomeTuples) {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].observation_space = *space::Space::Discrete(2);
  const auto env = WithFrameStack(std::make_unique<ScriptedEnv>(spec, nullptr), 2);
  EXPECT_EQ((*env)->spec().possible_agents[0].observation_space.ToString(), "Tuple(Discrete(2), Discrete(2))");
}

TEST(FrameStackTest, KeepsTheContractAndRefusesNonsense) {
  const ConformanceReport report = CheckConformance([] { return *WithFrameStack(Counting(), 4); });
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_EQ(WithFrameStack(Counting(), 0).status(), absl::InvalidArgumentError("got 0 frames, expected 1 to 64"));
  EXPECT_EQ(WithFrameStack(Counting(), 65).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*WithFrameStack(Counting(), 1))->spec().ToString(), Counting()->spec().ToString());
}

}  // namespace
}  // namespace troupe::env
