#include "lib/rpc/door/header_field_counter.h"

#include <algorithm>
#include <cstddef>

namespace troupe::rpc {

void HeaderFieldCounter::Add(std::string_view bytes) {
  while (!bytes.empty() && !malformed_) {
    if (text_bytes_ > 0) {
      const size_t taken = static_cast<size_t>(std::min<uint64_t>(text_bytes_, bytes.size()));
      text_bytes_ -= taken;
      bytes.remove_prefix(taken);
      continue;
    }
    const auto byte = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    if (shift_ >= 0) {
      ContinueInteger(byte);
    } else if (texts_left_ > 0) {
      BeginInteger(byte, 7);
    } else {
      BeginField(byte);
    }
  }
}

void HeaderFieldCounter::BeginField(uint8_t byte) {
  ++num_fields_;
  const bool indexed = (byte & 0x80) != 0;
  const bool added_to_table = (byte & 0xc0) == 0x40;
  const bool table_size = (byte & 0xe0) == 0x20;
  literal_ = !indexed && !table_size;
  BeginInteger(byte, indexed ? 7 : added_to_table ? 6 : table_size ? 5 : 4);
}

void HeaderFieldCounter::BeginInteger(uint8_t byte, int prefix_bits) {
  const uint64_t most = (uint64_t{1} << prefix_bits) - 1;
  value_ = byte & most;
  if (value_ == most) {
    shift_ = 0;
  } else {
    OnInteger();
  }
}

void HeaderFieldCounter::ContinueInteger(uint8_t byte) {
  constexpr int kMaxShift = 28;  // five bytes, as gRPC takes them
  if (shift_ > kMaxShift) {
    malformed_ = true;
    return;
  }
  value_ += static_cast<uint64_t>(byte & 0x7f) << shift_;
  shift_ += 7;
  if ((byte & 0x80) != 0) return;
  shift_ = -1;
  OnInteger();
}

void HeaderFieldCounter::OnInteger() {
  if (texts_left_ > 0) {
    --texts_left_;
    text_bytes_ = value_;
  } else if (literal_) {
    // A name by its place in the table, or one of its own before the value.
    texts_left_ = value_ == 0 ? 2 : 1;
  }
}

}  // namespace troupe::rpc
