// Apart from log.cc, so that a library that does not log needs no spdlog.

#include <algorithm>
#include <cstdio>

#include "lib/base/log.h"
#include "lib/base/shortened.h"

namespace troupe::base {
namespace {

/// Bytes of the UTF-8 character that `text` begins with; 1 where it begins with none. `text` is not empty.
size_t CharacterBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t size = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
  if (lead >= 0xf5 || size > text.size()) return 1;
  for (size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 1;
  }
  return size;
}

}  // namespace

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
  for (size_t size = 0; !text.empty(); text.remove_prefix(size)) {
    size = CharacterBytes(text);
    if (out.size() + size > max_bytes) {
      out += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(text[0]);
    const auto next = static_cast<unsigned char>(size > 1 ? text[1] : 0);
    // U+0080 to U+009F: a terminal takes them for ESC and another character.
    const bool two_byte_control = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if ((byte >= 0x20 && byte != 0x7f && !two_byte_control) || (keep_lines && (byte == '\n' || byte == '\t'))) {
      out += text.substr(0, size);
      continue;
    }
    char escaped[9];
    std::snprintf(escaped, sizeof(escaped), two_byte_control ? "\\x%02x\\x%02x" : "\\x%02x", byte, next);
    out += escaped;
  }
  return out;
}

std::string Shortened(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = 0;
  for (size_t size = 0; (size = CharacterBytes(text.substr(end))) <= max_bytes - end;) end += size;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace troupe::base
