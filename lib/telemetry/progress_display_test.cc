#include "lib/telemetry/progress_display.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include <gtest/gtest.h>

namespace troupe::telemetry {
namespace {

ProgressView View(int64_t env_steps, absl::Duration elapsed) {
  ProgressView view;
  view.run_name = "run";
  view.env_steps = env_steps;
  view.target_env_steps = 1'000'000;
  view.has_end = true;
  view.fraction = static_cast<double>(env_steps) / 1e6;
  view.left = absl::Seconds(static_cast<double>(1'000'000 - env_steps) / 20000);
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

TEST(ProgressDisplayTest, AnEvaluationIsShownWhileItPlays) {
  ProgressDisplay lines({});
  ASSERT_NE(lines.Render(View(500'000, absl::Seconds(25)), false), "");
  ProgressView view = View(500'000, absl::Seconds(29));
  view.evaluating = "evaluating, 3 of 100 episodes";
  EXPECT_EQ(lines.Render(view, false), "");
  view.elapsed = absl::Seconds(30);
  EXPECT_EQ(lines.Render(view, false), "0:30  evaluating, 3 of 100 episodes\n");
  EXPECT_NE(lines.Render(View(501'000, absl::Seconds(26)), false), "") << "training's own time goes on";
  ProgressDisplay block({.is_terminal = true, .columns = 90});
  EXPECT_NE(block.Render(view, false).find("evaluating, 3 of 100 episodes"), std::string::npos);
}

// A short run has one update, whose line was written before the end.
TEST(ProgressDisplayTest, TheLastLineIsWrittenOnce) {
  ProgressDisplay lines({});
  ASSERT_NE(lines.Render(View(500'000, absl::Seconds(25)), false), "");
  ASSERT_NE(lines.Render(View(600'000, absl::Seconds(31)), false), "");
  EXPECT_EQ(lines.Render(View(600'000, absl::Seconds(31)), true), "");
  ProgressView news = View(600'000, absl::Seconds(31));
  news.degraded = {"callbacks failed"};
  EXPECT_NE(lines.Render(news, true), "");

  ProgressDisplay evaluated({});
  ASSERT_NE(evaluated.Render(View(500'000, absl::Seconds(25)), false), "");
  ProgressView evaluating = View(500'000, absl::Seconds(30));
  evaluating.evaluating = "evaluating, 3 of 100 episodes";
  ASSERT_NE(evaluated.Render(evaluating, false), "");
  EXPECT_EQ(evaluated.Render(View(500'000, absl::Seconds(25)), true), "");

  ProgressDisplay block({.is_terminal = true, .columns = 90});
  ASSERT_NE(block.Render(View(500'000, absl::Seconds(25)), false), "");
  EXPECT_NE(block.Render(View(500'000, absl::Seconds(25)), true), "") << "it is drawn over itself";
}

// Or the trend would be that of the waiting.
TEST(ProgressDisplayTest, AnEvaluationLeavesTheTrendAsItIs) {
  ProgressDisplay display({.is_terminal = true, .columns = 90});
  display.Render(View(400'000, absl::Seconds(20)), false);
  display.Render(View(500'000, absl::Seconds(25)), false);
  ProgressView evaluating = View(500'000, absl::Seconds(25));
  evaluating.evaluating = "evaluating, 3 of 100 episodes";
  std::string block;
  for (int i = 0; i < 20; ++i) {
    evaluating.elapsed += absl::Seconds(1);
    block = display.Render(evaluating, false);
  }
  EXPECT_NE(block.find("return -29.50 (+0.10)"), std::string::npos) << block;
}

TEST(ProgressDisplayTest, ATerminalGetsOneBlockDrawnOverItself) {
  ProgressDisplay display({.is_terminal = true, .columns = 90});
  const std::string first = display.Render(View(250'000, absl::Seconds(1)), false);
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 4);
  EXPECT_NE(first.find("[=======                     ]  25%"), std::string::npos) << first;
  const std::string second = display.Render(View(260'000, absl::Seconds(2)), false);
  EXPECT_EQ(second.rfind("\x1b[4A\r", 0), 0u) << "goes up over the old block";
}

TEST(ProgressDisplayTest, TheReturnHasACurveOfTheWholeRun) {
  ProgressDisplay display({.is_terminal = true, .has_unicode = true, .columns = 90});
  std::string block;
  for (int i = 1; i <= 2000; ++i) {
    ProgressView view = View(i * 100, absl::Seconds(i + 1));
    view.return_sum = i <= 1000 ? 0 : 5;
    block = display.Render(view, false);
    if (i == 2) {
      EXPECT_EQ(block.find("▁"), std::string::npos) << "equal values are no curve";
    }
  }
  EXPECT_NE(block.find("return 5.00 (+0.00) ▁▁▁▁▁▁▁▁▁▁██████████"), std::string::npos) << block;
  ProgressDisplay narrow({.is_terminal = true, .has_unicode = true, .columns = 50});
  ProgressDisplay ascii({.is_terminal = true, .columns = 90});
  ProgressDisplay lines({.has_unicode = true});
  std::string in_ascii, in_lines;
  for (int i = 1; i <= 20; ++i) {
    ProgressView view = View(i, absl::Seconds(10 * i));
    view.return_sum = i;
    block = narrow.Render(view, false);
    in_ascii = ascii.Render(view, false);
    in_lines = lines.Render(view, false);
  }
  EXPECT_NE(block.find("▁▂▃▄▅▆▇█"), std::string::npos) << block;
  for (const std::string& text : {in_ascii, in_lines}) {
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; })) << text;
  }
}

/// What a terminal shows, as far as the display uses one: text, newlines, "up", "clear to the right" and "clear below".
/// A line that is wider than the terminal is wrapped, also when the terminal becomes narrower.
class Terminal {
 public:
  explicit Terminal(int columns) : columns_(columns) {}

  void Write(const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') {
        ++row_;
        column_ = 0;
        if (row_ == lines_.size()) lines_.emplace_back();
      } else if (text[i] == '\r') {
        column_ = 0;
      } else if (text[i] == '\x1b') {
        i = Control(text, i + 2);
      } else {
        Put(text[i]);
      }
    }
  }
  /// Every line, in as many rows as it needs now.
  void Resize(int columns) {
    std::vector<std::string> rows;
    for (size_t r = 0; r < lines_.size(); ++r) {
      const size_t begin = rows.size();
      for (size_t at = 0; at == 0 || at < lines_[r].size(); at += static_cast<size_t>(columns)) {
        rows.push_back(lines_[r].substr(at, static_cast<size_t>(columns)));
      }
      if (r == row_) row_in_new_ = begin;
    }
    columns_ = columns;
    lines_ = rows;
    row_ = row_in_new_;
  }
  const std::vector<std::string>& lines() const { return lines_; }
  std::string text() const { return absl::StrJoin(lines_, "\n"); }

 private:
  size_t Control(const std::string& text, size_t at) {
    size_t count = 0;
    for (; absl::ascii_isdigit(static_cast<unsigned char>(text[at])); ++at) {
      count = count * 10 + static_cast<size_t>(text[at] - '0');
    }
    if (text[at] == 'A') row_ -= std::min(row_, count);
    if (text[at] == 'K') lines_[row_].resize(std::min(lines_[row_].size(), column_));
    if (text[at] == 'J') {
      lines_[row_].resize(std::min(lines_[row_].size(), column_));
      lines_.resize(row_ + 1);
    }
    return at;
  }
  void Put(char c) {
    if (column_ == static_cast<size_t>(columns_)) Write("\n");
    lines_[row_].resize(std::max(lines_[row_].size(), column_ + 1), ' ');
    lines_[row_][column_++] = c;
  }

  int columns_;
  std::vector<std::string> lines_ = {""};
  size_t row_ = 0;
  size_t column_ = 0;
  size_t row_in_new_ = 0;
};

ProgressView Rivals(int64_t env_steps, absl::Duration elapsed) {
  ProgressView view = View(env_steps, elapsed);
  view.by_policy = true;
  view.policies = {{"hunter", -2.34, -12, 5, {{"policy", -0.0097}, {"value", 0.0587}}}, {"runner", 2.34, -5, 12}};
  view.agents = {{"wolf_0", -2.34}, {"wolf_1", -2.34}, {"sheep", 2.34}};
  view.evaluation = {{"hunter", 1.5}, {"runner", -1.5}};
  view.evaluation_env_steps = 200'000;
  view.failed_episodes = 3;
  return view;
}

TEST(ProgressDisplayTest, ABlockIsWholeInFiftyColumns) {
  ProgressDisplay display({.is_terminal = true, .columns = 50});
  ProgressView view = Rivals(250'000, absl::Seconds(1));
  view.best_by = "policy:hunter";
  view.best = -2.1;
  view.learning_rate = 1.23456e-5;
  view.degraded = {"checkpoints cannot be written: no room on the disk, or a limit on the size of files"};
  Terminal terminal(50);
  terminal.Write(display.Render(view, false));
  for (const std::string& line : terminal.lines()) EXPECT_LT(line.size(), 50u) << line;
  std::string words;
  for (const std::string& line : terminal.lines()) absl::StrAppend(&words, absl::StripAsciiWhitespace(line), " ");
  for (const char* piece : {"[===         ]  25%",
                            "250.0k/1.00M env steps",
                            "0:01",
                            "ETA 0:37",
                            "20.0k env steps/s",
                            "best policy:hunter -2.10",
                            "hunter",
                            "return -2.34",
                            "-12.00 to 5.00",
                            "policy -0.0097",
                            "value 0.0587",
                            "runner",
                            "by agent",
                            "wolf_0 -2.34",
                            "sheep 2.34",
                            "evaluation at 200.0k",
                            "hunter 1.50",
                            "update 3",
                            "policy -0.01234",
                            "value 0.5",
                            "workers 2",
                            "failed episodes 3",
                            "policy lag 0.0",
                            "lr 1.23e-05",
                            "run run"}) {
    EXPECT_NE(words.find(piece), std::string::npos) << piece << " is not in\n" << terminal.text();
  }
  EXPECT_EQ(words.find("per agent"), std::string::npos) << "a sum says little";
  const size_t degraded = words.find("DEGRADED: ");
  ASSERT_NE(degraded, std::string::npos);
  EXPECT_NE(words.find("limit on", degraded), std::string::npos) << words;
}

TEST(ProgressDisplayTest, ABlockStandsOnceAfterTheTerminalWasResized) {
  ProgressDisplay display({.is_terminal = true, .columns = 120});
  Terminal terminal(120);
  terminal.Write("what was there before\n");
  terminal.Write(display.Render(Rivals(250'000, absl::Seconds(1)), false));
  int seconds = 1;
  for (const int columns : {50, 120, 31, 90}) {
    SCOPED_TRACE(columns);
    terminal.Resize(columns);
    display.Resize(columns, 40);
    terminal.Write(display.Render(Rivals(260'000, absl::Seconds(++seconds)), false));
    EXPECT_EQ(terminal.lines()[0], "what was there before");
    size_t bars = 0;
    for (const std::string& line : terminal.lines()) {
      bars += line.find('[') != std::string::npos ? 1 : 0;
      EXPECT_LT(line.size(), static_cast<size_t>(columns)) << line;
    }
    EXPECT_EQ(bars, 1u) << terminal.text();
    EXPECT_EQ(terminal.lines().back(), "") << "behind the block is nothing\n" << terminal.text();
    const std::string text = terminal.text();
    EXPECT_EQ(text.find("workers 2"), text.rfind("workers 2")) << text;
  }
}

TEST(ProgressDisplayTest, AnInterruptedBlockStandsOnce) {
  ProgressDisplay display({.is_terminal = true, .columns = 100});
  Terminal terminal(100);
  terminal.Write(display.Render(View(250'000, absl::Seconds(1)), false));
  terminal.Write("^Cstopping: the learner writes a checkpoint\n");
  ProgressView view = View(260'000, absl::Seconds(2));
  view.interrupted = true;
  terminal.Write(display.Render(view, false));
  view.elapsed = absl::Seconds(3);
  terminal.Write(display.Render(view, true));
  terminal.Write("results in runs/run\n");
  ASSERT_EQ(terminal.lines().size(), 7u) << terminal.text();
  EXPECT_EQ(terminal.lines()[4], "^Cstopping: the learner writes a checkpoint");
  EXPECT_EQ(terminal.lines()[5], "results in runs/run");
  // Plain lines disturb nobody: the last one is told.
  EXPECT_NE(ProgressDisplay({}).Render(view, true), "");
}

TEST(ProgressDisplayTest, ANoteStandsAboveTheBlock) {
  ProgressDisplay display({.is_terminal = true, .columns = 100});
  Terminal terminal(100);
  terminal.Write(display.Render(View(250'000, absl::Seconds(1)), false));
  ProgressView view = View(260'000, absl::Seconds(1.01));
  view.notes = {"agents' rewards differ"};
  terminal.Write(display.Render(view, false));  // at once
  ASSERT_EQ(terminal.lines().size(), 6u) << terminal.text();
  EXPECT_EQ(terminal.lines()[0], "agents' rewards differ");
  EXPECT_NE(terminal.lines()[1].find("260.0k"), std::string::npos);
}

TEST(ProgressDisplayTest, ABlockIsLowerThanTheTerminal) {
  ProgressDisplay display({.is_terminal = true, .columns = 50, .rows = 5});
  const std::string text = display.Render(Rivals(250'000, absl::Seconds(1)), false);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(ProgressDisplayTest, TheHeadlineIsTheSumOrALineForEachPolicy) {
  ProgressView view = Rivals(500'000, absl::Seconds(25));
  view.return_sum = 0;
  const std::string rivals = ProgressDisplay({}).Render(view, true);
  EXPECT_NE(rivals.find("20.0k/s  hunter return -2.34  runner return 2.34  policy"), std::string::npos) << rivals;
  EXPECT_EQ(rivals.find("return 0.00"), std::string::npos) << rivals;
  view.by_policy = false;
  view.best_by = "sum";
  view.best = 0.5;
  const std::string team = ProgressDisplay({}).Render(view, true);
  EXPECT_NE(team.find("20.0k/s  return 0.00  hunter return -2.34  runner return 2.34  best 0.50  "), std::string::npos)
      << team;
}

TEST(ProgressDisplayTest, OpenEndHasNoBarAndNoReturnYet) {
  ProgressDisplay display({.is_terminal = true});
  ProgressView view = View(12'345, absl::Seconds(3700));
  view.target_env_steps = 0;
  view.has_end = false;
  view.left.reset();
  view.return_sum.reset();
  const std::string text = display.Render(view, true);
  EXPECT_EQ(text.find('['), text.find("\x1b[K") + 1) << "the only bracket is of the control sequence: " << text;
  EXPECT_NE(text.find("return -"), std::string::npos);
  EXPECT_NE(text.find("1:01:40"), std::string::npos);
}

TEST(ProgressDisplayTest, DroppedRowsAreToldByCauseOnceThereAreSome) {
  ProgressView view = View(500'000, absl::Seconds(25));
  EXPECT_EQ(ProgressDisplay({}).Render(view, true).find("dropped"), std::string::npos);
  view.rows_aged = 1200;
  view.rows_let_go = 3;
  EXPECT_NE(ProgressDisplay({}).Render(view, true).find("  rows dropped 1203 (1200 too old, 3 let go)  "),
            std::string::npos);
  EXPECT_NE(
      ProgressDisplay({.is_terminal = true}).Render(view, true).find("rows dropped 1203 (1200 too old, 3 let go)"),
      std::string::npos);
}

TEST(ProgressDisplayTest, FailedEpisodesAreCountedOnceThereAreSome) {
  ProgressView view = View(500'000, absl::Seconds(25));
  EXPECT_EQ(ProgressDisplay({}).Render(view, true).find("failed"), std::string::npos);
  view.failed_episodes = 12;
  EXPECT_NE(ProgressDisplay({}).Render(view, true).find("  workers 2  failed episodes 12  "), std::string::npos);
  EXPECT_NE(ProgressDisplay({.is_terminal = true}).Render(view, true).find("workers 2  failed episodes 12  "),
            std::string::npos);
}

TEST(ProgressDisplayTest, TheLearningRateIsShownOnceThereIsOne) {
  ProgressView view = View(500'000, absl::Seconds(25));
  EXPECT_EQ(ProgressDisplay({}).Render(view, true).find("lr "), std::string::npos);
  view.learning_rate = 7e-4;
  EXPECT_NE(ProgressDisplay({}).Render(view, true).find("  value 0.5  lr 0.0007  lag 0.0  "), std::string::npos);
  EXPECT_NE(ProgressDisplay({.is_terminal = true}).Render(view, true).find("policy lag 0.0  lr 0.0007  run run"),
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
