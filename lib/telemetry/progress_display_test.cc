#include "lib/telemetry/progress_display.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace troupe::telemetry {
namespace {

ProgressView View(int64_t env_steps, absl::Duration elapsed) {
  ProgressView view;
  view.run_name = "run";
  view.env_steps = env_steps;
  view.target_env_steps = 1'000'000;
  view.updates = 3;
  view.env_steps_per_s = 20000;
  view.elapsed = elapsed;
  view.return_sum = -30.0 + static_cast<double>(env_steps) / 1e6;
  view.losses = {{"policy", -0.01234}, {"value", 0.5}};
  view.workers = 2;
  return view;
}

TEST(ProgressDisplayTest, PlainLinesWithoutControlCharactersAndNotTooOften) {
  ProgressDisplay display({});
  const std::string first = display.Render(View(500'000, absl::Seconds(25)), false);
  EXPECT_EQ(
      first,
      "0:25  500000/1000000 (50%) env steps  20.0k/s  return -29.50  policy -0.01234  value 0.5  lag 0.0  workers 2  "
      "ETA 0:25\n");
  EXPECT_EQ(display.Render(View(510'000, absl::Seconds(26)), false), "");
  const std::string later = display.Render(View(600'000, absl::Seconds(31)), false);
  EXPECT_NE(later.find("return -29.40 (+0.10)"), std::string::npos) << later;
  EXPECT_EQ(later.find('\x1b'), std::string::npos);
  EXPECT_NE(display.Render(View(601'000, absl::Seconds(32)), true), "") << "the last is always shown";
}

TEST(ProgressDisplayTest, ATerminalGetsOneBlockDrawnOverItself) {
  ProgressDisplay display({.is_terminal = true, .columns = 60});
  const std::string first = display.Render(View(250'000, absl::Seconds(1)), false);
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 4);
  EXPECT_NE(first.find("[=======                     ]  25%"), std::string::npos) << first;
  const std::string second = display.Render(View(260'000, absl::Seconds(2)), false);
  EXPECT_EQ(second.rfind("\x1b[4A\r", 0), 0u) << "goes up over the old block";
}

TEST(ProgressDisplayTest, OpenEndHasNoBarAndNoReturnYet) {
  ProgressDisplay display({.is_terminal = true});
  ProgressView view = View(12'345, absl::Seconds(3700));
  view.target_env_steps = 0;
  view.return_sum.reset();
  const std::string text = display.Render(view, true);
  EXPECT_EQ(text.find('['), text.find("\x1b[K") + 1) << "the only bracket is of the control sequence: " << text;
  EXPECT_NE(text.find("return -"), std::string::npos);
  EXPECT_NE(text.find("1:01:40"), std::string::npos);
}

TEST(ProgressDisplayTest, FailedEpisodesAreCountedOnceThereAreSome) {
  ProgressView view = View(500'000, absl::Seconds(25));
  EXPECT_EQ(ProgressDisplay({}).Render(view, true).find("failed"), std::string::npos);
  view.failed_episodes = 12;
  EXPECT_NE(ProgressDisplay({}).Render(view, true).find("  workers 2  failed episodes 12  "), std::string::npos);
  EXPECT_NE(ProgressDisplay({.is_terminal = true}).Render(view, true).find("workers 2  failed episodes 12  "),
            std::string::npos);
}

TEST(ProgressDisplayTest, WhatDoesNotWorkIsShownWhileItDoesNot) {
  ProgressView view = View(500'000, absl::Seconds(25));
  view.degraded = {"checkpoints cannot be written: permission denied", "progress.jsonl cannot be written"};
  const std::string line = ProgressDisplay({}).Render(view, true);
  const std::string words =
      "DEGRADED: checkpoints cannot be written: permission denied; progress.jsonl cannot be written";
  EXPECT_NE(line.find(words + "\n"), std::string::npos) << line;
  ProgressDisplay terminal({.is_terminal = true, .columns = 100});
  const std::string block = terminal.Render(view, false);
  EXPECT_NE(block.find("DEGRADED: checkpoints cannot be written: permission denied\x1b[K\n"), std::string::npos)
      << block;
  view.degraded.clear();
  const std::string after = terminal.Render(view, true);
  EXPECT_EQ(after.find("DEGRADED"), std::string::npos);
  EXPECT_NE(after.find("\x1b[J"), std::string::npos) << "lines that the longer block has drawn stay";
}

}  // namespace
}  // namespace troupe::telemetry
