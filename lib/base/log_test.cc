#include "lib/base/log.h"

#include <string>
#include <vector>

#include "lib/base/shortened.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

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

TEST(TerminalSafeTest, ControlCharactersAreEscapedAndLettersStay) {
  EXPECT_EQ(TerminalSafe("Müller \xe5\xad\xa6"), "Müller \xe5\xad\xa6");
  EXPECT_EQ(TerminalSafe("a\x1b[2Jb\x7f\r\n"), "a\\x1b[2Jb\\x7f\\x0d\\x0a");
  EXPECT_EQ(TerminalSafe("\xc2\x9b[2J"), "\\xc2\\x9b[2J") << "ESC [ in UTF-8's two bytes";
  EXPECT_EQ(TerminalSafe("\xc2\xa7 1"), "\xc2\xa7 1");
  EXPECT_EQ(TerminalSafe("\xc2"), "\xc2");
  EXPECT_EQ(TerminalSafe("one\n\ttwo\r", 100, /*keep_lines=*/true), "one\n\ttwo\\x0d");
  EXPECT_EQ(TerminalSafe(std::string(300, 'x'), 10), "xxxxxxxxxx...");
}

TEST(TerminalSafeTest, CutsBetweenCharacters) {
  const std::string word = "a\xc3\xa9\xe5\xad\xa6\xf0\x9f\x90\xba";  // of one, two, three and four bytes
  const std::vector<size_t> begins = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6};
  for (size_t most = 0; most < begins.size(); ++most) {
    EXPECT_EQ(TerminalSafe(word, most), word.substr(0, begins[most]) + "...") << most;
    EXPECT_EQ(Shortened(word, most), word.substr(0, begins[most]) + "...") << most;
  }
  EXPECT_EQ(TerminalSafe(word, word.size()), word);
  EXPECT_EQ(Shortened(word, word.size()), word);
  // What is no character is bytes.
  for (const std::string odd : {"\xe5\xad", "\x90\x90\x90", "\xff\xff\xff", "\xf0\x9f\x90z", "\xc1\xc0z"}) {
    EXPECT_EQ(TerminalSafe(odd), odd);
    EXPECT_EQ(TerminalSafe(odd, 1), odd.substr(0, 1) + "...");
    EXPECT_EQ(Shortened(odd, 1), odd.substr(0, 1) + "...");
  }
}

TEST(LogTest, ALineFromOutsideIsNoCommandToTheTerminalAndNotEndless) {
  testing::internal::CaptureStderr();
  InitLogging("log_test", "info");
  TROUPE_INFO("its words: {}", "red\x1b[31m\ntwo");
  TROUPE_INFO("{}", std::string(1'000'000, 'x'));
  spdlog::default_logger()->flush();
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_THAT(logged, testing::HasSubstr("info log_test its words: red\\x1b[31m\ntwo\n"));
  EXPECT_THAT(logged, testing::EndsWith("xxx...\n"));
  EXPECT_LT(logged.size(), kMaxLogLineBytes + 200);
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
