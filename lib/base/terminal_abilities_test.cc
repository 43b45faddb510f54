#include "lib/base/terminal_abilities.h"

#include <map>

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TerminalAbilities Of(const std::map<std::string, std::string>& variables) {
  return TerminalAbilities::From([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

TEST(TerminalAbilitiesTest, TheEnvironmentSaysWhatATerminalShows) {
  EXPECT_TRUE(Of({{"TERM", "xterm"}, {"LANG", "de_DE.UTF-8"}}).unicode);
  EXPECT_TRUE(Of({{"TERM", "xterm"}, {"LANG", "C"}, {"LC_ALL", "C.utf8"}}).unicode);
  EXPECT_FALSE(Of({{"TERM", "xterm"}, {"LANG", "C.UTF-8"}, {"LC_ALL", "C"}}).unicode);
  EXPECT_FALSE(Of({{"TERM", "xterm"}}).unicode);
  EXPECT_EQ(Of({{"TERM", "xterm"}}).colors, 0);
  EXPECT_EQ(Of({{"TERM", "xterm-256color"}}).colors, 256);
  EXPECT_EQ(Of({{"TERM", "xterm"}, {"COLORTERM", "truecolor"}}).colors, 1 << 24);
  EXPECT_EQ(Of({{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}, {"NO_COLOR", "1"}}).colors, 0);
  for (const char* const terminal : {"", "dumb"}) {
    const TerminalAbilities none = Of({{"TERM", terminal}, {"LANG", "C.UTF-8"}, {"COLORTERM", "truecolor"}});
    EXPECT_FALSE(none.unicode);
    EXPECT_EQ(none.colors, 0);
  }
}

}  // namespace
}  // namespace troupe::base
