#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::fuzz {

/// The bytes that a fuzzer was given, taken from the front; empty when there are none left. Borrows them.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  /// A part with its length before it, two bytes little-endian: what a corpus of several messages is made of.
  std::string_view Part() {
    const size_t low = Byte();
    const size_t bytes = low + (size_t{Byte()} << 8);
    const std::string_view part = rest_.substr(0, bytes);
    rest_.remove_prefix(part.size());
    return part;
  }
  std::string_view Rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// `part` as FuzzInput::Part reads it; at most 65535 bytes.
inline std::string AsPart(std::string_view part) {
  std::string text;
  text += static_cast<char>(part.size() & 0xff);
  text += static_cast<char>(part.size() >> 8);
  return text.append(part);
}

}  // namespace troupe::fuzz
