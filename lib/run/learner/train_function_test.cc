#include "lib/run/learner/train_function.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/policy/policy_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TrainFunctionTest : public ::testing::Test {
 protected:
  ~TrainFunctionTest() override { End(); }

  absl::Status Start(const std::string& name, absl::Duration patience = absl::Seconds(60),
                     absl::Duration step_timeout = absl::Seconds(30)) {
    envhost::HostOptions options;
    options.step_timeout = step_timeout;
    options.interpreter = TROUPE_TEST_PYTHON;
    options.path = {absl::StrCat(TROUPE_SOURCE_DIR, "/lib/run/learner/testing")};
    auto started = TrainFunction::Start(
        absl::StrCat("python:host_test_trains:", name), options, &degradations_, [this] { return ends_.load(); },
        patience);
    if (!started.ok()) return started.status();
    function_ = *std::move(started);
    thread_ = std::thread([this] { function_->Run(); });
    return absl::OkStatus();
  }
  void End() {
    if (!thread_.joinable()) return;
    function_->Stop();
    thread_.join();
  }
  static learner::BatchFacts Batch(int64_t updates) {
    const policy::PolicyId main("main"), old("old");
    return {.updates = updates,
            .env_steps = 20,
            .policies = {{main, 30, {{"a", 20}, {"b", 10}}}, {old, 10, {{"b", 10}}}},
            .active = {main, old},
            .infos = {{"win", 0.25}}};
  }
  std::vector<bool> Choose(int64_t updates) { return function_->Choose(Batch(updates)); }

  Degradations degradations_;
  std::atomic<bool> ends_{false};
  std::unique_ptr<TrainFunction> function_;
  std::thread thread_;
};

TEST_F(TrainFunctionTest, SeesWhatIsInABatchAndSaysWhoTrains) {
  ASSERT_EQ(Start("chooses"), absl::OkStatus());
  EXPECT_THAT(Choose(0), ElementsAre(true, false));
  EXPECT_THAT(Choose(1), ElementsAre(true, false));
  EXPECT_EQ(function_->errors(), 0);
  EXPECT_EQ(function_->late(), 0);
  EXPECT_THAT(degradations_.List(), IsEmpty());
}

TEST_F(TrainFunctionTest, WhatFailsToAnswerLeavesTheLastAnswer) {
  ASSERT_EQ(Start("by_update"), absl::OkStatus());
  EXPECT_THAT(Choose(1), ElementsAre(true, true)) << "before the first answer all train";
  EXPECT_THAT(degradations_.List(), ElementsAre("policies_to_train gave no answer for 1 batch, the last one holds"));
  EXPECT_THAT(Choose(0), ElementsAre(false, true));
  for (const int64_t updates : {1, 2, 3}) EXPECT_THAT(Choose(updates), ElementsAre(false, true)) << updates;
  EXPECT_EQ(function_->errors(), 4);
  EXPECT_THAT(Choose(6), ElementsAre(false, true)) << "in another process";
  EXPECT_EQ(function_->errors(), 4);
}

// A policy that is to stay as it is would have trained after each resume.
TEST_F(TrainFunctionTest, TheFirstAnswerForAPolicyIsWaitedFor) {
  ASSERT_EQ(Start("by_update", absl::Milliseconds(1)), absl::OkStatus());
  EXPECT_THAT(Choose(4), ElementsAre(false, true));
  EXPECT_EQ(function_->late(), 0);
  EXPECT_THAT(degradations_.List(), IsEmpty());
  learner::BatchFacts batch = Batch(4);
  batch.policies[0].id = policy::PolicyId("new");
  batch.active.insert(policy::PolicyId("new"));
  EXPECT_THAT(function_->Choose(batch), ElementsAre(false, true)) << "also of one that joined";
  EXPECT_EQ(function_->late(), 0);
  // Of one that is gone nothing is remembered.
  batch.policies.pop_back();
  batch.active.erase(policy::PolicyId("old"));
  function_->Choose(batch);
  EXPECT_EQ(function_->late(), 1) << "it has an answer";
  EXPECT_THAT(Choose(7), ElementsAre(true, false)) << "not the answer of before";
  EXPECT_EQ(function_->late(), 1);
}

TEST_F(TrainFunctionTest, AFirstAnswerThatDoesNotComeIsWaitedForOnce) {
  ASSERT_EQ(Start("by_update", absl::Milliseconds(1), /*step_timeout=*/absl::Seconds(4)), absl::OkStatus());
  EXPECT_THAT(Choose(5), ElementsAre(true, true)) << "it hangs";
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(absl::Seconds(60)),
                                 [this] { return function_->errors() > 0; }));
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  for (int i = 0; i < 5; ++i) EXPECT_THAT(Choose(5), ElementsAre(true, true));
  EXPECT_LT(base::Clock::Real().SteadyNow() - begin, absl::Seconds(4));
}

TEST_F(TrainFunctionTest, ARunThatEndsWaitsForNoFirstAnswer) {
  ASSERT_EQ(Start("by_update", absl::Milliseconds(1)), absl::OkStatus());
  ends_ = true;
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  EXPECT_THAT(Choose(5), ElementsAre(false, false)) << "it would not be undone";
  EXPECT_LT(base::Clock::Real().SteadyNow() - begin, absl::Seconds(20));
  EXPECT_EQ(function_->late(), 0);
  ends_ = false;
  std::vector<bool> trains;
  std::thread update([&] { trains = Choose(5); });
  End();
  update.join();
  EXPECT_THAT(trains, ElementsAre(false, false));
}

TEST_F(TrainFunctionTest, ARunThatEndsHoldsTheLastAnswers) {
  ASSERT_EQ(Start("by_update"), absl::OkStatus());
  EXPECT_THAT(Choose(0), ElementsAre(false, true));
  End();
  EXPECT_THAT(Choose(0), ElementsAre(false, true));
}

TEST_F(TrainFunctionTest, AQuestionHasALimit) {
  ASSERT_EQ(Start("by_update"), absl::OkStatus());
  learner::BatchFacts batch = Batch(0);
  batch.policies[0].agents[0].first = std::string(envhost::PythonFunctions::kMaxTextBytes, 'a');
  EXPECT_THAT(function_->Choose(batch), ElementsAre(true, true));
  EXPECT_EQ(function_->errors(), 1);
}

TEST_F(TrainFunctionTest, NobodyWaitsForLong) {
  ASSERT_EQ(Start("by_update", absl::Milliseconds(50)), absl::OkStatus());
  EXPECT_THAT(Choose(0), ElementsAre(false, true));
  EXPECT_THAT(Choose(7), ElementsAre(false, true)) << "the last one";
  EXPECT_EQ(function_->late(), 1);
  EXPECT_THAT(degradations_.List(), ElementsAre(HasSubstr("policies_to_train answers late, for 1 batch")));
  // An answer that was late counts for a later batch.
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(absl::Seconds(60)), [this] {
    return Choose(7) == std::vector<bool>{true, false};
  }));
  EXPECT_THAT(degradations_.List(), ElementsAre(HasSubstr("policies_to_train answers late, for ")));
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(absl::Seconds(60)), [this] {
    return Choose(0) == std::vector<bool>{false, true} && degradations_.List().empty();
  })) << "one in time";
  EXPECT_GE(function_->late(), 2);
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  for (int i = 0; i < 5; ++i) Choose(5);  // it hangs
  End();
  EXPECT_LT(base::Clock::Real().SteadyNow() - begin, absl::Seconds(20));
}

TEST_F(TrainFunctionTest, WhatIsNoneIsAnErrorBeforeTheRunBegins) {
  EXPECT_THAT(std::string(Start("nobody").message()),
              HasSubstr("policies_to_train host_test_trains:nobody: 'nobody' is no attribute"));
  EXPECT_THAT(std::string(Start("three").message()), HasSubstr("expected 1 to 2 positional parameters"));
}

}  // namespace
}  // namespace troupe::run
