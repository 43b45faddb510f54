// Apart from log.cc, so that a library that does not log needs no spdlog.

#include <algorithm>
#include <cstdio>

#include "lib/base/log.h"

namespace troupe::base {

std::string LogSafe(std::string_view text, size_t max_chars) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= max_chars) {
      out += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out.push_back(c);
    } else {
      char escaped[5];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte);
      out += escaped;
    }
  }
  return out;
}

std::string LogSafeLines(std::string_view text, size_t max_chars, std::string_view indent) {
  std::string out;
  while (!text.empty() && out.size() < max_chars) {
    const size_t end = text.find('\n');
    if (!out.empty()) out.append("\n").append(indent);
    out += LogSafe(text.substr(0, end), max_chars - std::min(max_chars, out.size()));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

}  // namespace troupe::base
