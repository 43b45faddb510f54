#include "lib/env/wrappers.h"

#include <memory>
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
using testing::ScriptedEnv;
using testing::SmallSpec;

/// Two agents observe Dict{obs: t / 10, state: t} and get 3 each a step, forever.
std::unique_ptr<MultiAgentEnv> Endless() {
  EnvSpec spec = SmallSpec(2);
  for (AgentSpec& agent : spec.possible_agents)
    agent.observation_space = *space::ParseSpace("Dict{obs: Box(0, 1, [1]), state: Box(0, 9, [1])}");
  return std::make_unique<ScriptedEnv>(spec, [](int64_t t, ActionRows, StepWriter& out) {
    for (int32_t slot = 0; slot < 2; ++slot) {
      if (t > 0) out.AddReward(AgentSlot(slot), 3);
      float* const row = out.ObserveFloat(AgentSlot(slot));
      row[0] = 0.1f * static_cast<float>(t);
      row[1] = static_cast<float>(t);
    }
    return absl::OkStatus();
  });
}

WrapperOptions All() {
  WrapperOptions options;
  options.max_episode_steps = 3;
  options.groups = {{"both", {"agent_0", "agent_1"}, {}, {}}};
  options.rewards = {.scale = 0.5, .low = -1, .high = 2};
  options.frame_stack = 2;
  options.previous_step.reward = true;
  options.observation_fn = "joint_observation";
  return options;
}

TEST(WrappersTest, StandInOrder) {
  Called env(*WithWrappers(Endless(), All()));
  ASSERT_TRUE(env.Reset().ok());
  ASSERT_TRUE(env.Step().ok());
  // The state left before the group was made, two of its Tuples are stacked, then come its reward, as it is below, and
  // the function's bit of presence.
  EXPECT_THAT(env.Row(0), ElementsAre(0, 0, 0.1f, 0.1f, 2, 1));
  EXPECT_THAT(env.State(0), ElementsAre(1, 1));
  EXPECT_EQ(env.got().reward(0, 0), 2) << "the group's 6, halved, then clipped";
  EXPECT_THAT(env.got().infos(0, 0), ElementsAre(3, 3)) << "as the environment gave them";
  ASSERT_TRUE(env.Step().ok());
  ASSERT_TRUE(env.Step().ok());
  EXPECT_TRUE(env.got().all_truncated(0));
  EXPECT_EQ(env.spec().max_episode_steps, 3);
  const ConformanceReport report = CheckConformance([] { return *WithWrappers(Endless(), All()); });
  EXPECT_TRUE(report.ok()) << report.ToString();
}

TEST(WrappersTest, ImagesAreCroppedThenGrayThenSmallThenStacked) {
  EnvSpec spec = SmallSpec(1);
  spec.possible_agents[0].observation_space = *space::Space::Box(0, 255, {30, 40, 3}, tensor::DType::kUint8);
  WrapperOptions options;
  options.crop = {10, 0, 20, 40};
  options.grayscale = true;
  options.resize = {10, 20};
  options.frame_stack = 4;
  const auto env = WithWrappers(std::make_unique<ScriptedEnv>(spec, nullptr), options);
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ((*env)->spec().possible_agents[0].observation_space.ToString(), "Box(0, 255, [10, 20, 4], uint8)");
}

TEST(WrappersTest, WithoutOptionsTheEnvironmentIsAsItWas) {
  EnvSpec spec = SmallSpec(1);
  auto env = std::make_unique<ScriptedEnv>(spec, nullptr);
  const MultiAgentEnv* const raw = env.get();
  EXPECT_EQ(WithWrappers(std::move(env), {})->get(), raw);
}

TEST(WrappersTest, SaysWhichOptionIsToBlame) {
  const auto culprit = [](const WrapperOptions& options) {
    std::optional<WrapperOption> option;
    EXPECT_FALSE(WithWrappers(Endless(), options, &option).ok());
    return option;
  };
  WrapperOptions options;
  options.max_episode_steps = -1;
  EXPECT_EQ(culprit(options), WrapperOption::kMaxEpisodeSteps);
  options = {};
  options.dict_keys.action_mask = "obs";
  EXPECT_EQ(culprit(options), WrapperOption::kDictKeys);
  options = {};
  options.crop = {0, 0, 1, 1};
  EXPECT_EQ(culprit(options), WrapperOption::kCrop);
  options = {};
  options.grayscale = true;
  EXPECT_EQ(culprit(options), WrapperOption::kGrayscale);
  options = {};
  options.resize = {1, 1};
  EXPECT_EQ(culprit(options), WrapperOption::kResize);
  options = {};
  options.groups = {{"g", {}, {}, {}}};
  EXPECT_EQ(culprit(options), WrapperOption::kGroups);
  options = {};
  options.rewards.scale = 0;
  EXPECT_EQ(culprit(options), WrapperOption::kRewards);
  options = {};
  options.frame_stack = 0;
  EXPECT_EQ(culprit(options), WrapperOption::kFrameStack);
  options = {};
  options.frame_stack = 64;
  options.previous_step.action = true;
  EnvSpec large = SmallSpec(1);
  large.possible_agents[0].observation_space = *space::Space::Box(0, 1, {space::Space::kMaxElements / 64});
  std::optional<WrapperOption> option;
  EXPECT_FALSE(WithWrappers(std::make_unique<ScriptedEnv>(large, nullptr), options, &option).ok());
  EXPECT_EQ(option, WrapperOption::kPreviousStep);
  options = {};
  options.observation_fn = "x";
  EXPECT_EQ(culprit(options), WrapperOption::kObservationFn);
}

}  // namespace
}  // namespace troupe::env
