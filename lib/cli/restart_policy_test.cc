#include "lib/cli/restart_policy.h"

#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

constexpr ChildExit kKilled{.signal = 9};

RestartPolicy::Options Options() {
  RestartPolicy::Options options;
  options.backoff = {.initial = absl::Milliseconds(100), .max = absl::Seconds(1), .multiplier = 2.0};
  return options;
}

TEST(RestartPolicyTest, FifteenBarrenLivesInARowAreTheLast) {
  RestartPolicy policy(Options(), 1);
  for (int life = 1; life < 15; ++life) {
    const std::optional<absl::Duration> delay = policy.OnExit(kKilled, false);
    ASSERT_TRUE(delay.has_value()) << life;
    EXPECT_FALSE(policy.gave_up());
    EXPECT_LE(*delay, absl::Seconds(1));
  }
  EXPECT_EQ(policy.OnExit(kKilled, false), std::nullopt);
  EXPECT_TRUE(policy.gave_up());
  EXPECT_FALSE(policy.refused());
}

TEST(RestartPolicyTest, FruitfulLivesCostNothingAndTheirDelaysStaySmall) {
  RestartPolicy policy(Options(), 1);
  for (int i = 0; i < 1000; ++i) {
    const std::optional<absl::Duration> delay = policy.OnExit(kKilled, true);
    ASSERT_TRUE(delay.has_value()) << i;
    EXPECT_LE(*delay, absl::Milliseconds(100));
    EXPECT_GE(*delay, absl::Milliseconds(50)) << "a busy loop";
  }
}

TEST(RestartPolicyTest, AFruitfulLifeForgivesTheBarrenOnesBeforeIt) {
  RestartPolicy policy(Options(), 1);
  for (int i = 1; i <= 1000; ++i) ASSERT_TRUE(policy.OnExit(kKilled, i % 15 == 0).has_value()) << i;
}

TEST(RestartPolicyTest, TheDefaultDelaysOfBarrenLivesAddUpToLessThanHalfAMinute) {
  RestartPolicy policy({}, 1);
  absl::Duration sum;
  while (const std::optional<absl::Duration> delay = policy.OnExit({.code = 1}, false)) sum += *delay;
  EXPECT_LT(sum, absl::Seconds(30));
  EXPECT_GT(sum, absl::Seconds(5));
}

TEST(RestartPolicyTest, AWorkerThatLeftInOrderHasNoSuccessor) {
  RestartPolicy policy(Options(), 1);
  EXPECT_EQ(policy.OnExit({}, true), std::nullopt);
  EXPECT_EQ(policy.OnExit({.code = 130}, false), std::nullopt);
  EXPECT_FALSE(policy.gave_up());
  EXPECT_TRUE(policy.OnExit({.code = 1}, false).has_value());
}

TEST(RestartPolicyTest, AWorkerThatWasRefusedHasNoSuccessor) {
  RestartPolicy policy(Options(), 1);
  EXPECT_EQ(policy.OnExit({.code = 78}, false), std::nullopt);
  EXPECT_TRUE(policy.gave_up());
  EXPECT_TRUE(policy.refused());
}

}  // namespace
}  // namespace troupe::cli
