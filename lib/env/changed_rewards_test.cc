#include "lib/env/changed_rewards.h"

#include <utility>

#include "lib/env/conformance.h"
#include "lib/env/testing/call.h"
#include "lib/env/testing/scripted_env.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::env {
namespace {

using testing::Called;
using ::testing::HasSubstr;
using testing::ObserveAs;
using testing::ScriptedEnv;
using testing::SmallSpec;

/// agent_0 gets 3 in two parts before it observes, agent_1 gets -5 and waits in step 1.
std::unique_ptr<MultiAgentEnv> Parts() {
  EnvSpec spec = SmallSpec(2);
  spec.info_columns = {"reward"};
  spec.max_episode_steps = 3;
  return std::make_unique<ScriptedEnv>(spec, [](int64_t t, ActionRows, StepWriter& out) {
    if (t == 1 || t == 2) {
      out.AddReward(AgentSlot(0), 1);
      out.AddReward(AgentSlot(1), -5);
      out.AddReward(AgentSlot(0), 2);
    }
    ObserveAs(out, 0, 0);
    if (t != 1) ObserveAs(out, 1, 0);
    out.SetInfo(AgentSlot(0), 0, 3);
    if (t == 3) out.TerminateAll();
    return absl::OkStatus();
  });
}

TEST(ChangedRewardsTest, ScalesThenClipsWhatAStepGives) {
  Called env(*WithChangedRewards(Parts(), {.scale = 0.5, .low = -1, .high = 2}));
  ASSERT_TRUE(env.Reset().ok());
  ASSERT_TRUE(env.Step().ok());
  EXPECT_EQ(env.got().reward(0, 0), 1.5f) << "of the step's sum, not of its parts";
  EXPECT_EQ(env.got().reward(0, 1), -1.0f) << "also for who waits";
  EXPECT_EQ(env.got().infos(0, 0)[0], 3) << "infos stay";
  ASSERT_TRUE(env.Step().ok());
  EXPECT_EQ(env.got().reward(0, 1), -1.0f);
  ASSERT_TRUE(env.Step().ok());
  EXPECT_EQ(env.got().reward(0, 0), 0.0f) << "nothing stays from the step before";
}

TEST(ChangedRewardsTest, KeepsTheContractAndRefusesNonsense) {
  const ConformanceReport report =
      CheckConformance([] { return *WithChangedRewards(Parts(), {.scale = -2, .low = -3, .high = 0}); });
  EXPECT_TRUE(report.ok()) << report.ToString();
  const auto error = [](RewardChange change) {
    return std::string(WithChangedRewards(Parts(), change).status().message());
  };
  EXPECT_THAT(error({.scale = 0}), HasSubstr("reward scale of 0, expected a number other than 0"));
  EXPECT_THAT(error({.scale = 1, .low = 0.5, .high = 1}), HasSubstr("[0.5, 1], expected a range that holds 0"));
  EXPECT_THAT(error({.scale = 1, .low = 0, .high = 0}), HasSubstr("[0, 0], expected"));
}

}  // namespace
}  // namespace troupe::env
