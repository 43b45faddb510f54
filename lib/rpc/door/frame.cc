#include "lib/rpc/door/frame.h"

namespace troupe::rpc {

void AppendUint32(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift & 0xff));
}

void AppendFrame(std::string& out, uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  AppendUint32(out, static_cast<uint32_t>(payload.size()) << 8 | type);
  out.push_back(static_cast<char>(flags));
  AppendUint32(out, stream);
  out.append(payload);
}

}  // namespace troupe::rpc
