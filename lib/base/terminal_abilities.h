#pragma once

#include <functional>
#include <string>

namespace troupe::base {

/// What a terminal shows besides ASCII, as far as the environment says. Plain value.
struct TerminalAbilities {
  bool unicode = false;  ///< block characters, by the locale's UTF-8
  int colors = 0;        ///< 0, 256, or 1 << 24

  /// By TERM, COLORTERM, NO_COLOR, and LC_ALL, LC_CTYPE or LANG; `variable` gives a variable's value, empty where there
  /// is none.
  static TerminalAbilities From(const std::function<std::string(const std::string& name)>& variable);
  /// Of this process's environment.
  static TerminalAbilities OfProcess();
};

}  // namespace troupe::base
