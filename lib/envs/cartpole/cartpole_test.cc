#include "lib/envs/cartpole/cartpole.h"

#include <array>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/env/slot_buffers.h"

namespace troupe::envs {
namespace {

using ::testing::HasSubstr;

/// Steps with the same action for every agent that is ready.
absl::Status StepAll(Cartpole& env, env::SlotBuffers& buffers, int32_t action) {
  const space::ActionWord word{.i32 = action};
  std::vector<const space::ActionWord*> rows;
  for (int32_t slot = 0; slot < env.spec().num_agents(); ++slot)
    rows.push_back(buffers.ready(0, slot) ? &word : nullptr);
  return env.Step(rows, buffers.BeginStep(0));
}

TEST(CartpoleTest, WhoFallsIsTerminatedAlone) {
  Cartpole env({.num_agents = 2, .max_episode_steps = 500});
  env::SlotBuffers buffers(env.spec(), 1);
  const std::array<Cartpole::CartState, 2> states = {Cartpole::CartState{0, 0, 0.2, 2.0},
                                                     Cartpole::CartState{0, 0, 0, 0}};
  ASSERT_TRUE(env.ResetTo(states, buffers.BeginStep(0)).ok());
  ASSERT_TRUE(StepAll(env, buffers, 0).ok());
  EXPECT_TRUE(buffers.terminated(0, 0));
  EXPECT_TRUE(buffers.observed(0, 0));  // its last observation
  EXPECT_EQ(buffers.reward(0, 0), 1.0f);
  EXPECT_FALSE(buffers.all_done(0));
  EXPECT_TRUE(buffers.ready(0, 1));
  int steps = 1;
  while (!buffers.all_done(0)) {
    ASSERT_TRUE(StepAll(env, buffers, 0).ok());
    EXPECT_FALSE(buffers.observed(0, 0));
    EXPECT_EQ(buffers.reward(0, 0), 0.0f);
    EXPECT_EQ(buffers.reward(0, 1), 1.0f);
    ++steps;
  }
  EXPECT_TRUE(buffers.terminated(0, 1));
  EXPECT_TRUE(buffers.all_terminated(0));
  EXPECT_GT(steps, 5);
  EXPECT_LT(steps, 20);
}

TEST(CartpoleTest, TheLimitTruncatesThoseLeft) {
  Cartpole env({.num_agents = 3, .max_episode_steps = 2});
  env::SlotBuffers buffers(env.spec(), 1);
  const std::array<Cartpole::CartState, 3> states = {Cartpole::CartState{0, 0, 0.2, 2.0}, Cartpole::CartState{},
                                                     Cartpole::CartState{0, 0, 0.2, 0.3}};
  ASSERT_TRUE(env.ResetTo(states, buffers.BeginStep(0)).ok());
  ASSERT_TRUE(StepAll(env, buffers, 0).ok());
  EXPECT_TRUE(buffers.terminated(0, 0));
  ASSERT_TRUE(StepAll(env, buffers, 0).ok());
  EXPECT_TRUE(buffers.truncated(0, 1));
  EXPECT_FALSE(buffers.terminated(0, 1));
  EXPECT_TRUE(buffers.terminated(0, 2));  // fell in the last step: terminated, not truncated
  EXPECT_FALSE(buffers.truncated(0, 2));
  EXPECT_TRUE(buffers.all_done(0));
}

TEST(CartpoleTest, SuttonBartoReward) {
  Cartpole env({.num_agents = 1, .max_episode_steps = 500, .sutton_barto_reward = true});
  env::SlotBuffers buffers(env.spec(), 1);
  ASSERT_TRUE(env.ResetTo({Cartpole::CartState{0, 0, 0.19, 0.6}}, buffers.BeginStep(0)).ok());
  ASSERT_TRUE(StepAll(env, buffers, 1).ok());
  EXPECT_FALSE(buffers.terminated(0, 0));
  EXPECT_EQ(buffers.reward(0, 0), 0.0f);
  while (!buffers.all_done(0)) ASSERT_TRUE(StepAll(env, buffers, 0).ok());
  EXPECT_EQ(buffers.reward(0, 0), -1.0f);
}

TEST(CartpoleTest, WithoutVelocitiesOnlyPositionAndAngleAreSeen) {
  Cartpole hidden({.num_agents = 2, .velocities = false});
  Cartpole seen({.num_agents = 2});
  EXPECT_EQ(hidden.spec().possible_agents[1].observation_space.flat_size(), 2);
  EXPECT_EQ(seen.spec().possible_agents[1].observation_space.flat_size(), 4);
  env::SlotBuffers hidden_buffers(hidden.spec(), 1);
  env::SlotBuffers seen_buffers(seen.spec(), 1);
  const std::array<Cartpole::CartState, 2> states = {Cartpole::CartState{0.1, 0.2, 0.03, 0.4},
                                                     Cartpole::CartState{-0.5, -0.6, -0.07, -0.8}};
  ASSERT_TRUE(hidden.ResetTo(states, hidden_buffers.BeginStep(0)).ok());
  ASSERT_TRUE(seen.ResetTo(states, seen_buffers.BeginStep(0)).ok());
  for (int step = 0; step < 3; ++step) {
    for (int32_t slot = 0; slot < 2; ++slot) {
      const absl::Span<const float> two = hidden_buffers.observation(0, slot);
      const absl::Span<const float> four = seen_buffers.observation(0, slot);
      ASSERT_EQ(two.size(), 2u);
      EXPECT_EQ(two[0], four[0]);
      EXPECT_EQ(two[1], four[2]);
    }
    if (step == 0) {
      EXPECT_EQ(hidden_buffers.observation(0, 1)[1], -0.07f);
    }
    ASSERT_TRUE(StepAll(hidden, hidden_buffers, step % 2).ok());
    ASSERT_TRUE(StepAll(seen, seen_buffers, step % 2).ok());
    EXPECT_EQ(hidden.states()[0], seen.states()[0]) << "the dynamics are the same";
  }
}

TEST(CartpoleTest, AnAgentsStartDoesNotDependOnTheOthers) {
  const auto second = [](int agents) {
    Cartpole env({.num_agents = agents});
    env::SlotBuffers buffers(env.spec(), 1);
    EXPECT_TRUE(env.Reset({3, base::EnvId(1), 4}, buffers.BeginStep(0)).ok());
    return env.states()[1];
  };
  EXPECT_EQ(second(2), second(7));
}

TEST(CartpoleTest, RefusesBadArgumentsAndActions) {
  const auto error = [](env::ArgMap args) {
    return std::string(Cartpole::Make(env::EnvArgs(std::move(args))).status().message());
  };
  EXPECT_THAT(error({{"num_agents", int64_t{0}}}), HasSubstr("argument num_agents is 0"));
  EXPECT_THAT(error({{"max_episode_steps", 1.5}}), HasSubstr("argument max_episode_steps is 1.5"));
  EXPECT_THAT(error({{"velocities", int64_t{1}}}), HasSubstr("argument velocities is 1"));
  EXPECT_THAT(error({{"num_agent", int64_t{2}}}), HasSubstr("did you mean 'num_agents'?"));
  Cartpole env(Cartpole::Options{.num_agents = 1});
  env::SlotBuffers buffers(env.spec(), 1);
  ASSERT_TRUE(env.Reset({}, buffers.BeginStep(0)).ok());
  EXPECT_THAT(std::string(StepAll(env, buffers, 2).message()), HasSubstr("agent_0: action is 2, expected 0 or 1"));
  const std::array<const space::ActionWord*, 1> nobody = {nullptr};
  EXPECT_THAT(std::string(env.Step(nobody, buffers.BeginStep(0)).message()), HasSubstr("did not act"));
  EXPECT_FALSE(env.ResetTo({}, buffers.BeginStep(0)).ok());
}

}  // namespace
}  // namespace troupe::envs
