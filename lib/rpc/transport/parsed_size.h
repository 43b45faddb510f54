#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/slices.h"
#include <google/protobuf/message.h>

namespace troupe::rpc {

/// A message so short takes no memory to speak of: two bytes of it may become an object of some 400.
inline constexpr size_t kShortMessageBytes = size_t{16} << 10;

/// Reads `message` from bytes that anybody may have sent. Two bytes on the wire, an empty element of a list, may take
/// hundreds in memory: so what the message will take is added up from the bytes before anything is made of them.
///
/// RESOURCE_EXHAUSTED: more than `limit`. INVALID_ARGUMENT: the bytes are no such message. A field that this build does
/// not know counts with what protobuf keeps of it.
absl::Status ParseBounded(const SliceList& bytes, const ParsedLimit& limit, google::protobuf::Message* message);
absl::Status ParseBounded(std::string_view bytes, const ParsedLimit& limit, google::protobuf::Message* message);
/// ... of a call.
absl::Status ParseBounded(const grpc::ByteBuffer& bytes, const ParsedLimit& limit, google::protobuf::Message* message);

}  // namespace troupe::rpc
