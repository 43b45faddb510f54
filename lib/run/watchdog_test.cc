#include "lib/run/watchdog.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/named_loop.h"
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

const WatchdogOptions kOptions = {.interval = absl::Seconds(5), .failures = 3, .grace = absl::Seconds(15)};

/// Answers dials from a list, the last of it for ever, and remembers what came of it.
struct Story {
  explicit Story(std::vector<absl::Status> told) : answers(std::move(told)) {}

  Watchdog::Actions Actions() {
    Watchdog::Actions actions;
    actions.dial = [this] {
      clock.Advance(dial_takes);
      const size_t next = std::min(dials, answers.size() - 1);
      ++dials;
      return answers[next];
    };
    actions.on_deaf = [this](const std::string& words) { why = words; };
    actions.end = [this] { ended = true; };
    return actions;
  }

  const std::vector<absl::Status> answers;
  base::FakeClock clock;
  absl::Duration dial_takes = absl::ZeroDuration();
  size_t dials = 0;
  bool ended = false;
  std::string why;
};

const absl::Status kSilence = absl::DeadlineExceededError("nothing within 5s");
const absl::Status kFull = absl::ResourceExhaustedError("too many connections");

TEST(WatchdogTest, ThreeFailuresInARowAreTheEnd) {
  Story story({absl::OkStatus(), kSilence, kSilence, absl::OkStatus(), kSilence});
  Watchdog watchdog(kOptions, story.Actions(), story.clock);
  for (int step = 1; step < 7; ++step) {
    EXPECT_EQ(watchdog.Step(), kOptions.interval);
    EXPECT_FALSE(watchdog.deaf()) << step;
  }
  EXPECT_EQ(watchdog.Step(), kOptions.grace);
  EXPECT_TRUE(watchdog.deaf());
  EXPECT_EQ(story.why, "no answer at its own port 3 times in a row, at last: nothing within 5s");
  EXPECT_FALSE(story.ended);
  EXPECT_EQ(watchdog.Step(), absl::InfiniteDuration());
  EXPECT_TRUE(story.ended);
  EXPECT_EQ(story.dials, 7u);
}

TEST(WatchdogTest, ARefusalByALimitOfOursIsAnAnswer) {
  Story story({kSilence, kSilence, kFull, kSilence, kSilence, kFull, kSilence, kSilence, absl::OkStatus()});
  Watchdog watchdog(kOptions, story.Actions(), story.clock);
  for (int step = 0; step < 30; ++step) watchdog.Step();
  EXPECT_EQ(story.dials, 30u);
  EXPECT_FALSE(watchdog.deaf());
}

TEST(WatchdogTest, AnAnswerThatTakesLongDelaysNoDial) {
  Story story({absl::OkStatus()});
  Watchdog watchdog(kOptions, story.Actions(), story.clock);
  story.dial_takes = absl::Seconds(4);
  EXPECT_EQ(watchdog.Step(), absl::Seconds(1));
  story.dial_takes = absl::Seconds(6);
  EXPECT_EQ(watchdog.Step(), absl::ZeroDuration());
}

TEST(WatchdogTest, AnEndInOrderWithinTheGraceIsLeftAlone) {
  Story story({kSilence});
  Watchdog watchdog({.interval = absl::ZeroDuration(), .failures = 3, .grace = absl::Hours(1)}, story.Actions());
  {
    const base::NamedLoop loop("watchdog", [&watchdog] { return watchdog.Step(); });
    while (!watchdog.deaf()) {
    }
  }
  EXPECT_FALSE(story.ended);
}

TEST(WatchdogTest, APortThatIsClosedOnPurposeIsNotDialled) {
  Story story({absl::OkStatus(), kSilence});
  Watchdog watchdog(kOptions, story.Actions(), story.clock);
  watchdog.Step();
  watchdog.StopDialing();
  watchdog.StopDialing();
  for (int step = 0; step < 5; ++step) EXPECT_EQ(watchdog.Step(), kOptions.interval);
  EXPECT_EQ(story.dials, 1u);
  EXPECT_FALSE(watchdog.deaf());
}

TEST(WatchdogDeathTest, ADeafProcessEndsWith70) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto deaf = [] {
    Watchdog::Actions actions;
    actions.dial = [] { return kSilence; };
    actions.on_deaf = [](const std::string&) {};
    actions.end = [] { EndDeafProcess(); };
    Watchdog watchdog(kOptions, actions);
    while (true) watchdog.Step();
  };
  EXPECT_EXIT(deaf(), testing::ExitedWithCode(70), "");
}

}  // namespace
}  // namespace troupe::run
