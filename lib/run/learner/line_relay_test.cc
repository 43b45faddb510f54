#include "lib/run/learner/line_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace troupe::run {
namespace {

class LineRelayTest : public testing::Test {
 protected:
  LineRelayTest() {
    EXPECT_EQ(pipe2(fds_, O_CLOEXEC), 0);
    relay_ = *LineRelay::Adopt(fds_[0]);
  }
  ~LineRelayTest() override { EndWriting(); }

  void EndWriting() {
    if (fds_[1] >= 0) close(fds_[1]);
    fds_[1] = -1;
  }
  void Write(const std::string& text) {
    EXPECT_EQ(write(fds_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  /// What one step prints.
  std::string Step() {
    testing::internal::CaptureStderr();
    due_ = relay_->Step();
    return testing::internal::GetCapturedStderr();
  }

  int fds_[2];
  std::unique_ptr<LineRelay> relay_;
  absl::Duration due_;
};

TEST_F(LineRelayTest, LinesArePrintedWhole) {
  Write("one\ntwo\nthr");
  EXPECT_EQ(Step(), "one\ntwo\n");
  Write("ee\n");
  EXPECT_EQ(Step(), "three\n");
  EXPECT_EQ(due_, absl::ZeroDuration());
}

TEST_F(LineRelayTest, ALineThatDoesNotEndIsPrintedWhenNothingFollows) {
  Write("continue?");
  EXPECT_EQ(Step(), "");
  EXPECT_EQ(Step(), "continue?\n");
  EXPECT_EQ(Step(), "");
}

TEST_F(LineRelayTest, NorDoesOneGrowWithoutEnd) {
  std::string printed;
  size_t written = 0;
  while (printed.empty()) {
    ASSERT_LE(written, LineRelay::kMostBytes);
    Write(std::string(4096, 'x'));
    written += 4096;
    printed = Step();
  }
  EXPECT_EQ(printed, std::string(LineRelay::kMostBytes, 'x') + "\n");
}

TEST_F(LineRelayTest, WithoutWritersItIsNeverDueAgain) {
  Write("the last");
  EndWriting();
  EXPECT_EQ(Step(), "");
  EXPECT_EQ(Step(), "the last\n");
  EXPECT_EQ(due_, absl::InfiniteDuration());
}

TEST_F(LineRelayTest, WhatItHasReadItPrintsAtItsEnd) {
  Write("half");
  EXPECT_EQ(Step(), "");
  testing::internal::CaptureStderr();
  relay_.reset();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "half\n");
}

TEST(LineRelayAdoptTest, OnlyAPipeIsTaken) {
  EXPECT_EQ(LineRelay::Adopt(9999).status().code(), absl::StatusCode::kInvalidArgument);
  std::FILE* const file = std::tmpfile();
  EXPECT_EQ(LineRelay::Adopt(fileno(file)).status().code(), absl::StatusCode::kInvalidArgument);
  std::fclose(file);
}

}  // namespace
}  // namespace troupe::run
