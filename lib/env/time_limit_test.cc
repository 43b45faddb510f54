#include "lib/env/time_limit.h"

#include <utility>

#include "lib/env/conformance.h"
#include "lib/env/testing/call.h"
#include "lib/env/testing/scripted_env.h"
#include <gtest/gtest.h>

namespace troupe::env {
namespace {

using testing::Called;
using testing::ObserveAs;
using testing::ScriptedEnv;
using testing::SmallSpec;

/// Two agents; terminates at `end`, 0: never.
std::unique_ptr<MultiAgentEnv> Limited(int64_t limit, int64_t end, int64_t known = 0) {
  EnvSpec spec = SmallSpec(2);
  spec.max_episode_steps = known;
  auto env = WithTimeLimit(std::make_unique<ScriptedEnv>(spec,
                                                         [end](int64_t t, ActionRows, StepWriter& out) {
                                                           ObserveAs(out, 0, 0);
                                                           ObserveAs(out, 1, 0);
                                                           if (t == end && t > 0) out.TerminateAll();
                                                           return absl::OkStatus();
                                                         }),
                           limit);
  EXPECT_TRUE(env.ok()) << env.status();
  return *std::move(env);
}

TEST(TimeLimitTest, AnEpisodeThatGoesOnIsTruncatedForAll) {
  Called env(Limited(3, 0));
  EXPECT_EQ(env.spec().max_episode_steps, 3);
  for (int episode = 0; episode < 2; ++episode) {
    ASSERT_TRUE(env.Reset().ok());
    for (int t = 1; t < 3; ++t) {
      ASSERT_TRUE(env.Step().ok());
      EXPECT_FALSE(env.got().all_done(0));
    }
    ASSERT_TRUE(env.Step().ok());
    EXPECT_TRUE(env.got().all_truncated(0));
    EXPECT_FALSE(env.got().all_terminated(0));
    EXPECT_TRUE(env.got().observed(0, 1)) << "the last observation, to bootstrap from";
  }
}

TEST(TimeLimitTest, AnEndOfItsOwnStands) {
  Called at_the_limit(Limited(2, 2));
  ASSERT_TRUE(at_the_limit.Reset().ok());
  ASSERT_TRUE(at_the_limit.Step().ok());
  ASSERT_TRUE(at_the_limit.Step().ok());
  EXPECT_TRUE(at_the_limit.got().all_terminated(0));
  EXPECT_FALSE(at_the_limit.got().all_truncated(0));
  EXPECT_EQ(Limited(9, 0, 5)->spec().max_episode_steps, 5) << "the environment's own is shorter";
  EXPECT_EQ(Limited(4, 0, 5)->spec().max_episode_steps, 4);
}

TEST(TimeLimitTest, KeepsTheContract) {
  const ConformanceReport report = CheckConformance([] { return Limited(4, 0); });
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_EQ(WithTimeLimit(std::make_unique<ScriptedEnv>(SmallSpec(1), nullptr), 0).status(),
            absl::InvalidArgumentError("got 0 steps, expected at least 1"));
}

}  // namespace
}  // namespace troupe::env
