#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::rpc {

/// HTTP/2's frames: types, flags and error codes of RFC 9113, sections 6 and 7, as far as the door knows them.
enum FrameType : uint8_t {
  kDataFrame = 0,
  kHeadersFrame = 1,
  kRstStreamFrame = 3,
  kSettingsFrame = 4,
  kPingFrame = 6,
  kGoawayFrame = 7,
  kWindowUpdateFrame = 8,
  kContinuationFrame = 9,
};
enum FrameFlag : uint8_t { kEndStream = 0x1, kAck = 0x1, kEndHeaders = 0x4, kPadded = 0x8, kPriority = 0x20 };
enum class Http2Error : uint32_t {
  kNone = 0,
  kCancel = 8,
  kEnhanceYourCalm = 11,  ///< gRPC makes RESOURCE_EXHAUSTED of it
};

/// Big-endian.
void AppendUint32(std::string& out, uint32_t value);
/// A whole frame; the payload has less than 16 MiB.
void AppendFrame(std::string& out, uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload);

}  // namespace troupe::rpc
