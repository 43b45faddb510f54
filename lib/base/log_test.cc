#include "lib/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(LogSafeTest, EscapesControlCharactersAndCuts) {
  EXPECT_EQ(LogSafe("plain text"), "plain text");
  EXPECT_EQ(LogSafe("a\nb\x1b[0m"), "a\\x0ab\\x1b[0m");
  EXPECT_EQ(LogSafe("\xc3\xa4"), "\\xc3\\xa4");
  EXPECT_EQ(LogSafe(std::string(300, 'x'), 10), "xxxxxxxxxx...");
}

TEST(LogSafeTest, LinesStayAndNoneLooksLikeALogLine) {
  EXPECT_EQ(LogSafeLines("one\n2026-01-01 error forged\x1b[2J\n\n", 100), "one\n  2026-01-01 error forged\\x1b[2J\n  ");
  EXPECT_EQ(LogSafeLines("one\ntwo", 100), "one\n  two");
  EXPECT_EQ(LogSafeLines("", 100), "");
  EXPECT_LT(LogSafeLines(std::string(1000, '\n'), 100).size(), 110u);
  EXPECT_LT(LogSafeLines("a\n" + std::string(1000, '\x1b'), 100).size(), 120u);
}

TEST(LogTest, DebugLinesAreInEveryBuildAndCostNothingWhereNobodyWantsThem) {
  int evaluated = 0;
  const auto count = [&evaluated] { return ++evaluated; };
  InitLogging("log_test", "info");
  TROUPE_DEBUG("not wanted count={}", count());
  EXPECT_EQ(evaluated, 0);
  testing::internal::CaptureStderr();
  InitLogging("log_test", "debug");
  TROUPE_DEBUG("wanted count={}", count());
  spdlog::default_logger()->flush();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("debug log_test wanted count=1"));
  InitLogging("log_test", "info");
}

}  // namespace
}  // namespace troupe::base
