#include "lib/cli/next_commands.h"

#include <string>

#include "lib/base/testing/made_up_folder.h"
#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

EndedRun Spread() {
  EndedRun run;
  run.folder = "runs/spread";
  run.is_there = true;
  run.has_checkpoint = true;
  run.has_events = true;
  run.draws = true;
  run.finished = true;
  run.raised = "stop.env_steps=2000000";
  return run;
}

TEST(NextCommandsTest, AreAlignedLines) {
  EXPECT_EQ(NextCommandsText("./troupe", Spread()),
            "  evaluate  ./troupe evaluate runs/spread\n"
            "  video     ./troupe evaluate runs/spread --video spread.gif\n"
            "  curves    tensorboard --logdir runs/spread\n"
            "  query     ./troupe query runs/spread\n"
            "  resume    ./troupe train --resume runs/spread --set stop.env_steps=2000000\n");
}

TEST(NextCommandsTest, ARunThatWasInterruptedGoesOnAsItIs) {
  EndedRun run = Spread();
  run.finished = false;
  run.raised.clear();
  const std::string text = NextCommandsText("troupe", run);
  EXPECT_NE(text.find("  resume    troupe train --resume runs/spread\n"), std::string::npos) << text;
}

TEST(NextCommandsTest, NoLineNamesWhatIsNotThere) {
  EndedRun run = Spread();
  run.raised.clear();  // it reached a return, which nobody can double
  EXPECT_EQ(NextCommandsText("troupe", run).find("--resume"), std::string::npos);
  run.has_events = false;
  EXPECT_EQ(NextCommandsText("troupe", run).find("tensorboard"), std::string::npos);
  run.draws = false;
  EXPECT_EQ(NextCommandsText("troupe", run).find("--video"), std::string::npos);
  run.draws = true;
  run.has_checkpoint = false;
  EXPECT_EQ(NextCommandsText("troupe", run), "");
}

TEST(NextCommandsTest, AWorldOutsideIsPlayedByItsClientsAlone) {
  EndedRun run = Spread();
  run.plays = false;
  EXPECT_EQ(NextCommandsText("troupe", run),
            "  curves    tensorboard --logdir runs/spread\n"
            "  query     troupe query runs/spread\n"
            "  resume    troupe train --resume runs/spread --set stop.env_steps=2000000\n");
}

TEST(NextCommandsTest, AShellTakesThemAsTheyStand) {
  EndedRun run = Spread();
  run.folder = "my runs/it's";
  const std::string text = NextCommandsText("/opt/my tools/troupe", run);
  EXPECT_NE(text.find("'/opt/my tools/troupe' evaluate 'my runs/it'\\''s'\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" train --resume 'my runs/it'\\''s' --set"), std::string::npos) << text;
}

TEST(NextCommandsTest, ARunWithoutACheckpointBeginsAgain) {
  EndedRun run = Spread();
  run.finished = run.has_checkpoint = run.has_events = false;
  EXPECT_EQ(NextCommandsText("troupe", run), "  resume    troupe train --resume runs/spread\n");
  run.is_there = false;
  EXPECT_EQ(NextCommandsText("troupe", run), "");
}

/// A run's folder with these files of its own.
class RunFolderTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const { made_up_.Write(name, text); }
  const base::MadeUpFolder made_up_;
  const std::string& folder_ = made_up_.root();
};

TEST_F(RunFolderTest, TheLimitThatWasReachedIsDoubled) {
  Write("config.yaml", "env: {name: cartpole}\nstop: {env_steps: 400, agent_steps: 30, updates: 7, wall_clock: 1.5}\n");
  const auto raised = [this](const std::string& reason) {
    Write("summary.json",
          "{\"reason\": \"" + reason + "\", \"env_steps\": 500, \"updates\": 28, \"wall_clock_s\": 1.6}");
    const EndedRun run = ReadEndedRun(folder_);
    return run.finished ? run.raised : "not finished";
  };
  EXPECT_EQ(raised("stop.env_steps reached: 500 of 400"), "stop.env_steps=800");
  EXPECT_EQ(raised("stop.agent_steps reached: 30 of 30"), "stop.agent_steps=60");
  EXPECT_EQ(raised("stop.updates reached: 28 of 7"), "stop.updates=56") << "14 and 28 are not more than there were";
  EXPECT_EQ(raised("stop.wall_clock reached: 1.6 of 1.5"), "stop.wall_clock=3");
  EXPECT_EQ(raised("stop.episode_return reached: 21 of 20"), "");
  EXPECT_EQ(raised("asked to end"), "not finished");
  EXPECT_TRUE(ReadEndedRun(folder_).draws);
  Write("config.yaml", "env: {name: cartpole}\n");
  EXPECT_EQ(raised("stop.env_steps reached: 500 of 400"), "stop.env_steps=1000") << "auto: of the steps there were";
  Write("config.yaml", "env: {name: cartpole}\nstop: {env_steps: 9000000000000000000}\n");
  EXPECT_EQ(raised("stop.env_steps reached: 9000000000000000000 of 9000000000000000000"), "") << "twice is no number";
}

TEST_F(RunFolderTest, AWorldOutsideIsKnownByItsConfiguration) {
  Write("config.yaml", "env: {name: cartpole}\n");
  EXPECT_TRUE(ReadEndedRun(folder_).plays);
  Write("config.yaml",
        "env: {external: {spaces: {cart: {obs_space: \"Box(-1, 1, [4])\", act_space: \"Discrete(2)\"}}}}\n");
  EXPECT_FALSE(ReadEndedRun(folder_).plays);
}

TEST_F(RunFolderTest, WhatCannotBeReadIsNotThere) {
  EXPECT_FALSE(ReadEndedRun(folder_ + "/none").has_events);
  for (const char* summary :
       {"", "[]", "{\"reason\": 3}", "{\"reason\": \"stop.env_steps\", \"env_steps\": \"many\"}"}) {
    Write("summary.json", summary);
    EXPECT_EQ(ReadEndedRun(folder_).raised, "") << summary;
  }
  EXPECT_FALSE(ReadEndedRun(folder_).has_events);
  Write("events.out.tfevents.1.host", "");
  EXPECT_TRUE(ReadEndedRun(folder_).has_events);
  EXPECT_FALSE(ReadEndedRun(folder_).has_checkpoint);
  EXPECT_FALSE(ReadEndedRun(folder_).is_there);
  Write("config.yaml", "");
  EXPECT_TRUE(ReadEndedRun(folder_).is_there);
}

}  // namespace
}  // namespace troupe::cli
