#include "lib/base/first_signal.h"

#include <csignal>

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

using Meaning = FirstSignal::Meaning;

TEST(FirstSignalTest, ACopyIsOfTheSameKindWithinASecond) {
  FirstSignal first;
  EXPECT_EQ(first.signal(), 0);
  EXPECT_EQ(first.Take(SIGTERM, 5'000'000'000'000), Meaning::kFirst) << "a machine that has run for 158 years";
  EXPECT_EQ(first.signal(), SIGTERM);
  EXPECT_EQ(first.Take(SIGTERM, 5'000'000'000'000), Meaning::kCopy);
  EXPECT_EQ(first.Take(SIGTERM, 5'000'000'000'999), Meaning::kCopy);
  EXPECT_EQ(first.Take(SIGTERM, 5'000'000'001'000), Meaning::kAtOnce);
  EXPECT_EQ(first.signal(), SIGTERM);
}

TEST(FirstSignalTest, TheClockIsTheMachines) {
  FirstSignal first;
  EXPECT_EQ(first.Take(SIGTERM, 0), Meaning::kFirst);
  EXPECT_EQ(first.TakeNow(SIGTERM), Meaning::kAtOnce) << "the machine has run for more than a second";
}

TEST(FirstSignalTest, AnotherKindEndsAtOnce) {
  FirstSignal first;
  EXPECT_EQ(first.Take(SIGINT, 0), Meaning::kFirst);
  EXPECT_EQ(first.Take(SIGTERM, 1), Meaning::kAtOnce);
  EXPECT_EQ(first.signal(), SIGINT);
}

}  // namespace
}  // namespace troupe::base
