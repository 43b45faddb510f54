#include "lib/run/learner/train_function.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
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

  absl::Status Start(const std::string& name, absl::Duration patience = absl::Seconds(60)) {
    envhost::HostOptions options;
    options.interpreter = TROUPE_TEST_PYTHON;
    options.path = {absl::StrCat(TROUPE_SOURCE_DIR, "/lib/run/learner/testing")};
    auto started =
        TrainFunction::Start(absl::StrCat("python:host_test_trains:", name), options, &degradations_, patience);
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
  std::vector<bool> Choose(int64_t updates) {
    return function_->Choose({.updates = updates,
                              .env_steps = 20,
                              .policies = {{policy::PolicyId("main"), 30, {{"a", 20}, {"b", 10}}},
                                           {policy::PolicyId("old"), 10, {{"b", 10}}}},
                              .infos = {{"win", 0.25}}});
  }

  Degradations degradations_;
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

TEST_F(TrainFunctionTest, NobodyWaitsForLong) {
  ASSERT_EQ(Start("by_update", absl::Milliseconds(1)), absl::OkStatus());
  EXPECT_THAT(Choose(4), ElementsAre(true, true));
  EXPECT_EQ(function_->late(), 1);
  EXPECT_THAT(degradations_.List(), ElementsAre(HasSubstr("policies_to_train answers late, for 1 batch")));
  // An answer that was late counts for a later batch.
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(absl::Seconds(60)), [this] {
    return Choose(0) == std::vector<bool>{false, true};
  }));
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
