#include "lib/cli/output.h"

#include "lib/cli/programs.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::cli {
namespace {

TEST(OutputTest, WithThousands) {
  EXPECT_EQ(WithThousands(0), "0");
  EXPECT_EQ(WithThousands(999), "999");
  EXPECT_EQ(WithThousands(1000), "1,000");
  EXPECT_EQ(WithThousands(1234567), "1,234,567");
  EXPECT_EQ(WithThousands(-123), "-123");
  EXPECT_EQ(WithThousands(-1234), "-1,234");
  EXPECT_EQ(WithThousands(-123456), "-123,456");
}

TEST(OutputTest, WhatAServerCallsItsPoliciesIsNoCommandToTheTerminal) {
  testing::internal::CaptureStdout();
  PrintTable({{"policy", "class"}, {"a\x1b[2J", "ppo"}});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "policy    class\na\\x1b[2J  ppo\n");
}

TEST(OutputTest, JsonHoldsNoControlCharacters) {
  testing::internal::CaptureStdout();
  PrintJson({{"name", "a\x1b\x7f\xc2\x9b"}});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "{\"name\":\"a\\u001b\\u007f\\u009b\"}\n");
}

TEST(ProgramsTest, ShellQuoted) {
  EXPECT_EQ(ShellQuoted("a-b/c=1.5"), "a-b/c=1.5");
  EXPECT_EQ(ShellQuoted(""), "''");
  EXPECT_EQ(ShellQuoted("a b"), "'a b'");
  EXPECT_EQ(ShellQuoted("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace troupe::cli
