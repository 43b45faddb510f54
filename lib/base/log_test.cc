#include "lib/base/log.h"

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(LogSafeTest, EscapesControlCharactersAndCuts) {
  EXPECT_EQ(LogSafe("plain text"), "plain text");
  EXPECT_EQ(LogSafe("a\nb\x1b[0m"), "a\\x0ab\\x1b[0m");
  EXPECT_EQ(LogSafe("\xc3\xa4"), "\\xc3\\xa4");
  EXPECT_EQ(LogSafe(std::string(300, 'x'), 10), "xxxxxxxxxx...");
}

}  // namespace
}  // namespace troupe::base
