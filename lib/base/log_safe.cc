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

std::string TerminalSafe(std::string_view text, size_t max_bytes, bool keep_lines) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (out.size() >= max_bytes) {
      out += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    // U+0080 to U+009F: a terminal takes them for ESC and another character.
    const bool two_byte_control = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if ((byte >= 0x20 && byte != 0x7f && !two_byte_control) || (keep_lines && (byte == '\n' || byte == '\t'))) {
      out.push_back(text[i]);
      continue;
    }
    char escaped[9];
    std::snprintf(escaped, sizeof(escaped), two_byte_control ? "\\x%02x\\x%02x" : "\\x%02x", byte, next);
    out += escaped;
    if (two_byte_control) ++i;
  }
  return out;
}

}  // namespace troupe::base
