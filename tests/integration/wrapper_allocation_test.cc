// A step of an environment with everything that can stand between it and the policies allocates nothing.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/config/make_env.h"
#include "lib/config/resolved_run.h"
#include "lib/env/checked_env.h"
#include "lib/env/slot_buffers.h"
#include "lib/envs/register_all.h"
#include "lib/rollout/testing/malloc_counter.h"
#include <gtest/gtest.h>

namespace troupe::integration {
namespace {

TEST(WrapperAllocationTest, NoneInAStep) {
  env::EnvRegistry registry;
  envs::RegisterAllEnvs(registry);
  // Images stay bytes until previous_action but in a group, and joint_observation needs floats.
  for (const bool grouped : {false, true}) {
    const auto config = config::RunConfig::FromYaml(
        absl::StrCat("env: {name: testing/signals, args: {dict: true, hybrid: true}, max_episode_steps: 7, ",
                     grouped ? "groups: {both: [agent_1, agent_0]}, "
                             : "crop: [1, 0, 3, 2], resize: [10, 12], grayscale: true, ",
                     "reward_scale: 2, reward_clip: 1, frame_stack: 3, previous_action: true, previous_reward: true}\n",
                     grouped ? "multi_agent: {observation_fn: joint_observation}\n" : ""),
        "test.yaml");
    ASSERT_TRUE(config.ok()) << config.status();
    const auto run = config::ResolveRun(*config, registry);
    ASSERT_TRUE(run.ok()) << run.status();
    env::CheckedEnv env(*config::MakeEnv(run->env, registry));
    env::SlotBuffers buffers(env.spec(), 1);
    const size_t agents = env.spec().possible_agents.size();
    std::vector<std::vector<space::ActionWord>> actions(agents);
    std::vector<const space::ActionWord*> rows(agents);
    for (size_t i = 0; i < agents; ++i)
      actions[i].resize(static_cast<size_t>(env.spec().possible_agents[i].action_space.action_words()));
    base::PhiloxSequence random(base::PhiloxKey::Make(1, base::RandomStream::kTest), {});
    int64_t steps = 0;
    const auto play = [&](uint32_t episode) {
      absl::Status status = env.Reset({.episode = episode}, buffers.BeginStep(0));
      while (status.ok() && !buffers.all_done(0)) {
        for (size_t i = 0; i < agents; ++i) {
          const int32_t slot = static_cast<int32_t>(i);
          rows[i] = buffers.ready(0, slot) ? actions[i].data() : nullptr;
          env.spec().possible_agents[i].action_space.SampleAction(random, buffers.action_mask(0, slot),
                                                                  absl::MakeSpan(actions[i]));
        }
        status = env.Step(rows, buffers.BeginStep(0));
        ++steps;
      }
      return status;
    };
    ASSERT_TRUE(play(0).ok());
    const int64_t before = rollout::AllocationCount();
    for (uint32_t episode = 1; episode <= 20; ++episode) ASSERT_TRUE(play(episode).ok());
    EXPECT_EQ(rollout::AllocationCount() - before, 0) << grouped;
    EXPECT_EQ(steps, 21 * 7);
  }
}

}  // namespace
}  // namespace troupe::integration
