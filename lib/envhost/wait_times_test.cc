#include "lib/envhost/wait_times.h"

#include "gtest/gtest.h"

namespace troupe::envhost {
namespace {

void LearnOften(WaitTimes& times, absl::Duration took) {
  for (int i = 0; i < 100; ++i) times.Learn(took);
}

TEST(WaitTimesTest, NapsAreAPartOfTheUsualWait) {
  WaitTimes times;
  EXPECT_EQ(times.Nap(), absl::ZeroDuration()) << "nothing is known";
  LearnOften(times, absl::Milliseconds(2));
  EXPECT_GT(times.Nap(), absl::Microseconds(490));
  EXPECT_LE(times.Nap(), absl::Microseconds(500));
  times.Learn(absl::ZeroDuration());
  EXPECT_GT(times.Nap(), absl::Microseconds(400)) << "one wait changes little";
}

TEST(WaitTimesTest, NoneBelowOrAboveTheLimits) {
  WaitTimes times;
  LearnOften(times, WaitTimes::kShortestNap * WaitTimes::kNapsAWait * 0.9);
  EXPECT_EQ(times.Nap(), absl::ZeroDuration());
  LearnOften(times, WaitTimes::kShortestNap * WaitTimes::kNapsAWait * 1.1);
  EXPECT_GE(times.Nap(), WaitTimes::kShortestNap);
  LearnOften(times, WaitTimes::kLongestNap * WaitTimes::kNapsAWait * 0.9);
  EXPECT_GT(times.Nap(), absl::Milliseconds(1));
  LearnOften(times, WaitTimes::kLongestNap * WaitTimes::kNapsAWait * 1.1);
  EXPECT_EQ(times.Nap(), absl::ZeroDuration());
}

}  // namespace
}  // namespace troupe::envhost
