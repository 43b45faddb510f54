#include "services/cli/restart_policy.h"

#include <gtest/gtest.h>

namespace troupe::services {
namespace {

RestartPolicy::Options Options() {
  RestartPolicy::Options options;
  options.backoff = {
      .initial = absl::Milliseconds(100), .max = absl::Seconds(1), .multiplier = 2.0, .budget = absl::Seconds(5)};
  options.healthy_after = absl::Seconds(10);
  return options;
}

TEST(RestartPolicyTest, KilledAndFailedWorkersAreStartedAgainUntilTheBudgetIsSpent) {
  RestartPolicy policy(Options(), 1);
  absl::Duration sum;
  int restarts = 0;
  while (const std::optional<absl::Duration> delay = policy.OnExit({.signal = 9}, absl::ZeroDuration())) {
    EXPECT_FALSE(policy.spent());
    EXPECT_LE(*delay, absl::Seconds(1));
    sum += *delay;
    ASSERT_LT(++restarts, 1000);
  }
  EXPECT_TRUE(policy.spent());
  EXPECT_LE(sum, absl::Seconds(5));
  EXPECT_GE(restarts, 5);
}

TEST(RestartPolicyTest, AWorkerThatLeftInOrderHasNoSuccessor) {
  RestartPolicy policy(Options(), 1);
  EXPECT_EQ(policy.OnExit({}, absl::Seconds(1)), std::nullopt);
  EXPECT_FALSE(policy.spent());
  EXPECT_TRUE(policy.OnExit({.code = 1}, absl::Seconds(1)).has_value());
}

TEST(RestartPolicyTest, AHealthyLifeGivesAFullBudget) {
  RestartPolicy policy(Options(), 1);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(policy.OnExit({.signal = 9}, absl::Seconds(10)).has_value()) << i;
  }
}

TEST(ChildExitTest, SaysHowItEnded) {
  EXPECT_EQ((ChildExit{.code = 3}).ToString(), "exited with 3");
  EXPECT_EQ((ChildExit{.signal = 9}).ToString(), "was killed by signal 9 (Killed)");
  EXPECT_EQ((ChildExit{.signal = 9}).ShellCode(), 137);
  EXPECT_EQ((ChildExit{.code = 3}).ShellCode(), 3);
}

}  // namespace
}  // namespace troupe::services
