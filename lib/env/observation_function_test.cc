#include "lib/env/observation_function.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/env/checked_env.h"
#include "lib/env/slot_buffers.h"
#include "lib/env/testing/scripted_env.h"
#include <gtest/gtest.h>

namespace troupe::env {
namespace {

using testing::ObserveAs;
using testing::ScriptedEnv;
using testing::SmallSpec;

std::unique_ptr<CheckedEnv> Joint(ScriptedEnv::Script script, EnvSpec spec = SmallSpec(3)) {
  auto env = WithObservationFunction(std::make_unique<ScriptedEnv>(std::move(spec), std::move(script)),
                                     **FindObservationFunction("joint_observation"));
  EXPECT_TRUE(env.ok()) << env.status();
  return env.ok() ? std::make_unique<CheckedEnv>(*std::move(env)) : nullptr;
}

std::vector<float> Row(const SlotBuffers& buffers, int32_t slot) {
  const absl::Span<const float> row = buffers.observation(0, slot);
  return {row.begin(), row.end()};
}

TEST(ObservationFunctionTest, EveryAgentSeesWhatAllSee) {
  const auto env = Joint([](int64_t t, ActionRows, StepWriter& out) {
    if (t == 0) {
      ObserveAs(out, 0, 0.25f);
      ObserveAs(out, 2, 0.5f);
      return absl::OkStatus();
    }
    out.AddReward(AgentSlot(0), 3);
    ObserveAs(out, 1, -1.0f);
    out.TerminateAgent(AgentSlot(0));
    return absl::OkStatus();
  });
  EXPECT_EQ(env->spec().possible_agents[1].observation_space.ToString(), "Box(-inf, inf, [9])");
  EXPECT_EQ(env->spec().possible_agents[1].action_space.ToString(), "Discrete(3)");
  SlotBuffers buffers(env->spec(), 1);
  ASSERT_TRUE(env->Reset({}, buffers.BeginStep(0)).ok());
  const std::vector<float> first = {0.25f, 0.25f, 0, 0, 0.5f, 0.5f, 1, 0, 1};
  EXPECT_EQ(Row(buffers, 0), first);
  EXPECT_EQ(Row(buffers, 2), first);
  EXPECT_FALSE(buffers.observed(0, 1)) << "who observes nothing is not made to";
  const space::ActionWord action{.i32 = 1};
  const std::vector<const space::ActionWord*> actions = {&action, nullptr, &action};
  ASSERT_TRUE(env->Step(actions, buffers.BeginStep(0)).ok());
  EXPECT_EQ(Row(buffers, 1), (std::vector<float>{0, 0, -1, -1, 0, 0, 0, 1, 0})) << "nothing of an earlier call";
  EXPECT_EQ(buffers.reward(0, 0), 3);
  EXPECT_TRUE(buffers.terminated(0, 0));
}

TEST(ObservationFunctionTest, WhatTheEnvironmentBreaksIsSaidOfTheEnvironment) {
  const auto env = Joint([](int64_t, ActionRows, StepWriter& out) {
    ObserveAs(out, 1, std::nanf(""));
    return absl::OkStatus();
  });
  SlotBuffers buffers(env->spec(), 1);
  const absl::Status status = env->Reset({}, buffers.BeginStep(0));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find("agent_1"), std::string::npos) << status;
}

TEST(ObservationFunctionTest, ErrorsAreClear) {
  EXPECT_EQ(FindObservationFunction("joint_observations").status(),
            absl::NotFoundError("there is no observation function \"joint_observations\"; the nearest is "
                                "\"joint_observation\""));
  EnvSpec spec = SmallSpec(2);
  spec.possible_agents[1].observation_space = *space::Space::Box(0, 255, {2}, tensor::DType::kUint8);
  const auto env = WithObservationFunction(std::make_unique<ScriptedEnv>(spec, nullptr),
                                           **FindObservationFunction("joint_observation"));
  EXPECT_EQ(env.status(), absl::InvalidArgumentError("joint_observation: agent \"agent_1\" observes Box(0, 255, [2], "
                                                     "uint8), expected spaces with float rows"));
}

absl::StatusOr<std::vector<space::Space>> TooFew(const EnvSpec&) { return std::vector<space::Space>(1); }
absl::StatusOr<std::vector<space::Space>> Bytes(const EnvSpec& spec) {
  return std::vector<space::Space>(spec.possible_agents.size(), *space::Space::Box(0, 255, {1}, tensor::DType::kUint8));
}

TEST(ObservationFunctionTest, DeclaredSpacesMustBeServable) {
  const auto error = [](const ObservationFunction& function) {
    return std::string(
        WithObservationFunction(std::make_unique<ScriptedEnv>(SmallSpec(2), nullptr), function).status().message());
  };
  EXPECT_EQ(error({"mine", TooFew, nullptr}),
            "observation function mine declares 1 spaces, expected one for each of 2 agents");
  EXPECT_EQ(error({"mine", Bytes, nullptr}),
            "observation function mine declares Box(0, 255, [1], uint8) for agent \"agent_0\", expected a space with "
            "float rows");
}

/// A function of one's own over images: their mean, as a float.
void MeanByte(const SlotBuffers& all, AgentSlot slot, float* row) {
  const absl::Span<const uint8_t> image = all.observation_uint8(0, slot.value());
  *row = 0;
  for (const uint8_t element : image) *row += static_cast<float>(element) / static_cast<float>(image.size());
}
absl::StatusOr<std::vector<space::Space>> OneFloat(const EnvSpec& spec) {
  return std::vector<space::Space>(spec.possible_agents.size(), *space::Space::Box(0, 255, {1}));
}

TEST(ObservationFunctionTest, MayReadBytes) {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].observation_space = *space::Space::Box(0, 255, {2}, tensor::DType::kUint8);
  const ObservationFunction function{"mean", OneFloat, MeanByte};
  CheckedEnv env(*WithObservationFunction(std::make_unique<ScriptedEnv>(spec,
                                                                        [](int64_t, ActionRows, StepWriter& out) {
                                                                          auto* row = static_cast<uint8_t*>(
                                                                              out.Observe(AgentSlot(0)));
                                                                          row[0] = 10;
                                                                          row[1] = 30;
                                                                          return absl::OkStatus();
                                                                        }),
                                          function));
  SlotBuffers buffers(env.spec(), 1);
  ASSERT_TRUE(env.Reset({}, buffers.BeginStep(0)).ok());
  EXPECT_EQ(Row(buffers, 0), std::vector<float>{20});
}

}  // namespace
}  // namespace troupe::env
