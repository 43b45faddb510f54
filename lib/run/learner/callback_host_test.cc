#include "lib/run/learner/callback_host.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CallbackHostTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("TROUPE_TEST_NOTES", NotesPath().c_str(), 1); }
  void TearDown() override { End(); }

  std::string NotesPath() const { return scratch_.path() + "/notes"; }
  std::vector<std::string> Notes() const {
    std::ifstream file(NotesPath());
    std::stringstream text;
    text << file.rdbuf();
    return absl::StrSplit(text.str(), '\n', absl::SkipEmpty());
  }
  absl::Status Start(const std::vector<std::string>& classes, absl::Duration call_timeout = absl::Seconds(20)) {
    CallbackHost::Options options;
    for (const std::string& name : classes) {
      options.callbacks.push_back(absl::StrCat("python:host_test_callbacks:", name));
    }
    options.python.interpreter = TROUPE_TEST_PYTHON;
    options.python.path = {absl::StrCat(TROUPE_SOURCE_DIR, "/lib/run/learner/testing")};
    options.run_directory = "/runs/mine";
    options.call_timeout = call_timeout;
    options.stop = [this](const std::string& reason) { stops_.push_back(reason); };
    options.degradations = &degradations_;
    absl::StatusOr<std::unique_ptr<CallbackHost>> started = CallbackHost::Start(std::move(options));
    if (started.ok()) host_ = *std::move(started);
    return started.status();
  }
  void Tell(Hook hook, int64_t env_steps) {
    EXPECT_TRUE(host_->TryTell(hook, nlohmann::json{{"env_steps", env_steps}}));
  }
  /// In the place of a thread of its own.
  void CallAll() {
    while (!host_->AwaitIdle(absl::ZeroDuration())) host_->Step();
  }
  void End() {
    if (host_ == nullptr) return;
    host_->Stop();
    host_->Run();
  }

  const storage::ScratchDirectory scratch_;
  Degradations degradations_;
  std::vector<std::string> stops_;
  std::unique_ptr<CallbackHost> host_;
};

TEST_F(CallbackHostTest, CallsAreMadeInTheOrderOfWhatHappenedAndOnlyWhereSomebodyWantsTo) {
  ASSERT_EQ(Start({"First", "Second", "Idle"}), absl::OkStatus());
  EXPECT_TRUE(host_->Wants(Hook::kRunStart));
  EXPECT_TRUE(host_->Wants(Hook::kUpdateEnd));
  EXPECT_FALSE(host_->Wants(Hook::kEvaluationStart));
  EXPECT_FALSE(host_->Wants(Hook::kCheckpointEnd));
  host_->Tell(Hook::kRunStart, {{"env_steps", 0}, {"resumed", false}});
  Tell(Hook::kUpdateEnd, 10);
  Tell(Hook::kUpdateEnd, 20);
  host_->Tell(Hook::kRunEnd, {{"env_steps", 20}, {"reason", "done"}});
  EXPECT_THAT(Notes(), IsEmpty()) << "who tells does not wait";
  End();  // what waits is still called
  EXPECT_THAT(Notes(), ElementsAre("first starts resumed=False reason=None", "first 10", "second 10", "first 20",
                                   "second 20", "first ends done /runs/mine"));
  EXPECT_THAT(degradations_.List(), IsEmpty());
}

TEST_F(CallbackHostTest, ClassesThatCannotBeMadeAreAnErrorOfTheStart) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"Firts", "'Firts' is no attribute of module host_test_callbacks, did you mean First?"},
      {"Stranger", "got an object of type Stranger, expected a class that is derived from troupe.Callback"},
      {"Unmade", "RuntimeError: no disk (at "}};
  for (const auto& [name, text] : cases) {
    const absl::Status status = Start({"First", name});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

TEST_F(CallbackHostTest, ACallThatRaisesIsCountedAndCostsTheNextOneNothing) {
  ASSERT_EQ(Start({"Faulty", "Second"}), absl::OkStatus());
  for (const int64_t env_steps : {1, 7, 4, 8}) Tell(Hook::kUpdateEnd, env_steps);
  CallAll();
  EXPECT_THAT(Notes(), ElementsAre("second 1", "called 7", "second 7", "second 4", "called 8", "second 8"));
  EXPECT_THAT(degradations_.List(),
              ElementsAre("2 calls of callbacks raised an exception, the last was on_update_end"));
  const std::vector<learner::NamedValue> values = host_->TakeValues();
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values[0].key, "callback_errors");
  EXPECT_EQ(values[0].value, 2);
}

TEST_F(CallbackHostTest, ACallThatDoesNotReturnEndsThem) {
  ASSERT_EQ(Start({"Faulty"}, absl::Seconds(5)), absl::OkStatus());
  for (const int64_t env_steps : {7, 2, 8}) Tell(Hook::kUpdateEnd, env_steps);
  CallAll();
  EXPECT_THAT(Notes(), ElementsAre("called 7"));
  EXPECT_THAT(degradations_.List(), ElementsAre("callbacks are off: on_update_end: did not return within 5s"));
  EXPECT_FALSE(host_->Wants(Hook::kUpdateEnd));
  Tell(Hook::kUpdateEnd, 9);  // nothing waits any more
  EXPECT_TRUE(host_->AwaitIdle(absl::ZeroDuration()));
  EXPECT_EQ(host_->TakeValues().back().value, 1);
}

TEST_F(CallbackHostTest, AProcessThatEndsEndsThem) {
  ASSERT_EQ(Start({"Faulty"}), absl::OkStatus());
  Tell(Hook::kUpdateEnd, 3);
  CallAll();
  EXPECT_THAT(degradations_.List(), ElementsAre("callbacks are off: on_update_end: its process exited with 3"));
  EXPECT_FALSE(host_->Wants(Hook::kUpdateEnd));
}

TEST_F(CallbackHostTest, AProcessThatEndsBetweenTwoCallsIsNoticed) {
  ASSERT_EQ(Start({"Faulty"}), absl::OkStatus());
  Tell(Hook::kUpdateEnd, 6);
  const base::Deadline deadline = base::Deadline::After(absl::Seconds(30));
  while (host_->Wants(Hook::kUpdateEnd) && !deadline.passed()) host_->Step();
  EXPECT_THAT(degradations_.List(), ElementsAre("callbacks are off: between two calls: its process exited with 6"));
}

TEST_F(CallbackHostTest, WhatIsNoAnswerEndsThem) {
  ASSERT_EQ(Start({"Faulty"}), absl::OkStatus());
  Tell(Hook::kUpdateEnd, 5);
  CallAll();
  EXPECT_THAT(degradations_.List(),
              ElementsAre("callbacks are off: on_update_end: its process said what is no answer"));
}

TEST_F(CallbackHostTest, TimeInWhichTheLearnerIsAskedIsNoneOfTheCalls) {
  ASSERT_EQ(Start({"Asking"}, absl::Seconds(1)), absl::OkStatus());
  Tell(Hook::kUpdateEnd, 1);
  CallAll();
  EXPECT_THAT(Notes(), ElementsAre("answered"));
  EXPECT_THAT(degradations_.List(), IsEmpty());
}

TEST_F(CallbackHostTest, ValuesAreMeansSinceTheyWereLastAskedFor) {
  ASSERT_EQ(Start({"Tracking"}), absl::OkStatus());
  for (const int64_t env_steps : {10, 20}) Tell(Hook::kUpdateEnd, env_steps);
  CallAll();
  const std::vector<learner::NamedValue> values = host_->TakeValues();
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[0].key, "Custom/Loss/mine");
  EXPECT_EQ(values[0].tag, "Custom/Loss/mine");
  EXPECT_EQ(values[0].value, 0.5);
  EXPECT_EQ(values[1].key, "Custom/reward");
  EXPECT_EQ(values[1].value, 15);
  EXPECT_EQ(values[2].key, "callback_errors");
  EXPECT_EQ(values[2].value, 0);
  EXPECT_EQ(host_->TakeValues().size(), 1u);
}

TEST_F(CallbackHostTest, LinesThatComeTogetherAreNotWaitedForOneByOne) {
  ASSERT_EQ(Start({"Tracking"}), absl::OkStatus());
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  Tell(Hook::kEvaluationEnd, 1);  // some 260 lines
  CallAll();
  EXPECT_LT(base::Clock::Real().SteadyNow() - begin, absl::Seconds(10));
  EXPECT_EQ(host_->TakeValues().size(), CallbackHost::kMaxTracked + 1);
}

TEST_F(CallbackHostTest, NamesThatAreTrackedHaveLimits) {
  ASSERT_EQ(Start({"Tracking"}), absl::OkStatus());
  Tell(Hook::kEvaluationEnd, 1);
  CallAll();
  EXPECT_THAT(Notes(), ElementsAre("track: got the name '', expected 1 to 128 printable characters of ASCII",
                                   AllOf(HasSubstr("track: got the name 'xxx"), HasSubstr("expected 1 to 128")),
                                   "track: got the name 'a\\nb', expected 1 to 128 printable characters of ASCII",
                                   "track: got the name 5, expected 1 to 128 printable characters of ASCII",
                                   "track nan: got nan, expected a finite number of at most 1e+100 either way",
                                   "track much: got -1e+101, expected a finite number of at most 1e+100 either way",
                                   "track word: got 'one', expected one number"));
  EXPECT_EQ(host_->TakeValues().size(), CallbackHost::kMaxTracked + 1) << "and the count of errors";
  EXPECT_THAT(degradations_.List(), ElementsAre(HasSubstr("a call of callbacks raised")));
  Tell(Hook::kRunEnd, 2);
  CallAll();
  EXPECT_THAT(degradations_.List(), ElementsAre("callbacks are off: on_run_end: tracked more than 256 names"));
}

TEST_F(CallbackHostTest, WhatIsCalledForEpisodesIsSaidAndNotCalledHere) {
  ASSERT_EQ(Start({"First", "Episodes", "Ends", "Idle"}), absl::OkStatus());
  EXPECT_THAT(host_->episode_callbacks(),
              ElementsAre("python:host_test_callbacks:Episodes", "python:host_test_callbacks:Ends"));
  EXPECT_THAT(host_->episode_hooks(), ElementsAre("on_episode_end", "on_episode_step"));
}

TEST_F(CallbackHostTest, WhatWorkersTrackIsWeighedByEpisodes) {
  ASSERT_EQ(Start({"Tracking"}), absl::OkStatus());
  Tell(Hook::kUpdateEnd, 10);
  CallAll();
  host_->AddTracked({.tracked = {{"length", 30, 3}, {"reward", 6, 3}}});
  host_->AddTracked({.tracked = {{"length", 10, 2}}});
  const std::vector<learner::NamedValue> values = host_->TakeValues();
  ASSERT_EQ(values.size(), 4u);
  EXPECT_EQ(values[0].key, "Custom/Loss/mine");
  EXPECT_EQ(values[1].key, "Custom/length");
  EXPECT_EQ(values[1].value, 8);
  EXPECT_EQ(values[2].value, 4) << "of both: 10 here, three times 2 there";
  EXPECT_EQ(values[3].value, 0);
  EXPECT_THAT(degradations_.List(), IsEmpty());
}

TEST_F(CallbackHostTest, WorkersWhoseCallbacksAreOffAndNamesTooManyAreSaid) {
  ASSERT_EQ(Start({"Tracking"}), absl::OkStatus());
  std::vector<base::TrackedTotal> many;
  for (size_t i = 0; i <= CallbackHost::kMaxTracked; ++i) many.push_back({absl::StrCat("name ", i), 1, 1});
  host_->AddTracked({.tracked = many});
  EXPECT_EQ(host_->TakeValues().size(), CallbackHost::kMaxTracked + 1) << "and the count of errors";
  EXPECT_THAT(degradations_.List(),
              ElementsAre("callbacks of episodes track more than 256 names, others are left out"));
  host_->AddTracked({.workers_off = 2, .turned_off = 2});
  EXPECT_THAT(degradations_.List(), ElementsAre("callbacks of episodes are off at 2 workers"));
  EXPECT_EQ(host_->TakeValues().back().value, 2);
  host_->AddTracked({.turned_off = 2});
  EXPECT_THAT(degradations_.List(),
              ElementsAre("callbacks of episodes track more than 256 names, others are left out"));
}

TEST_F(CallbackHostTest, WorkersThatHaveLeftAreNotOffAndStayCounted) {
  ASSERT_EQ(Start({"Tracking"}), absl::OkStatus());
  host_->AddTracked({.workers_off = 1, .turned_off = 2});
  EXPECT_THAT(degradations_.List(), ElementsAre("callbacks of episodes are off at 1 worker"));
  host_->AddTracked({.turned_off = 2});
  EXPECT_THAT(degradations_.List(), IsEmpty());
  EXPECT_EQ(host_->TakeValues().back().value, 2);
  host_->AddTracked({.leaves_out = true});
  host_->AddTracked({});
  EXPECT_THAT(degradations_.List(),
              ElementsAre("callbacks of episodes track more than 256 names, others are left out"));
}

TEST_F(CallbackHostTest, ACallMayEndTheRun) {
  ASSERT_EQ(Start({"Stopping"}), absl::OkStatus());
  Tell(Hook::kUpdateEnd, 1);
  CallAll();
  ASSERT_EQ(stops_.size(), 1u);
  EXPECT_THAT(stops_[0], ::testing::StartsWith("solved solved"));
  EXPECT_EQ(stops_[0].size(), 200u);
}

TEST_F(CallbackHostTest, AFullQueueRefusesWhoMayWait) {
  ASSERT_EQ(Start({"Second"}), absl::OkStatus());
  for (size_t i = 0; i < CallbackHost::kMaxWaiting; ++i) Tell(Hook::kUpdateEnd, static_cast<int64_t>(i));
  EXPECT_FALSE(host_->TryTell(Hook::kUpdateEnd, {{"env_steps", 1000}}));
  host_->Tell(Hook::kUpdateEnd, {{"env_steps", 2000}});
  host_->AwaitRoom(absl::Milliseconds(1));
  EXPECT_FALSE(host_->TryTell(Hook::kUpdateEnd, {{"env_steps", 1000}}));
  std::thread calls([this] { host_->Run(); });
  const base::Deadline deadline = base::Deadline::After(absl::Seconds(60));
  while (!host_->TryTell(Hook::kUpdateEnd, {{"env_steps", 3000}}) && !deadline.passed()) {
    host_->AwaitRoom(absl::Seconds(1));
  }
  host_->Stop();
  calls.join();
  const std::vector<std::string> notes = Notes();
  ASSERT_EQ(notes.size(), CallbackHost::kMaxWaiting + 2) << "none is lost";
  EXPECT_EQ(notes[0], "second 0");
  EXPECT_EQ(notes[64], "second 2000");
  EXPECT_EQ(notes[65], "second 3000");
}

}  // namespace
}  // namespace troupe::run
