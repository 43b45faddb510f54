#include "lib/base/terminal_abilities.h"

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace troupe::base {

TerminalAbilities TerminalAbilities::From(const std::function<std::string(const std::string& name)>& variable) {
  TerminalAbilities abilities;
  const std::string terminal = variable("TERM");
  if (terminal.empty() || terminal == "dumb") return abilities;
  std::string locale;
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (locale.empty()) locale = absl::AsciiStrToLower(variable(name));  // the first that is set counts
  }
  abilities.unicode = absl::StrContains(locale, "utf-8") || absl::StrContains(locale, "utf8");
  if (!variable("NO_COLOR").empty()) return abilities;
  const std::string colors = variable("COLORTERM");
  if (colors == "truecolor" || colors == "24bit" || absl::EndsWith(terminal, "-direct")) {
    abilities.colors = 1 << 24;
  } else if (absl::StrContains(terminal, "256color")) {
    abilities.colors = 256;
  }
  return abilities;
}

TerminalAbilities TerminalAbilities::OfProcess() {
  return From([](const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  });
}

}  // namespace troupe::base
