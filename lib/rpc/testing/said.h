#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "lib/rpc/codec/fragment_codec.h"
#include "lib/rpc/transport/client_link.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

namespace troupe::rpc {

/// A fragment of so many bytes, all of them payload: for who keeps fragments and reads none.
inline EncodedFragment FragmentOfBytes(size_t bytes) {
  const grpc::Slice slice(std::string(bytes, 'x'));
  return {grpc::ByteBuffer(&slice, 1), bytes};
}

/// What a passive part of the client says, read back; an empty message where it says nothing.
template <typename Message>
Message Said(const std::optional<LinkOwner::Outgoing>& outgoing) {
  Message message;
  if (outgoing.has_value()) {
    const absl::Status read = ParseBounded(outgoing->message, kAnswerLimit, &message);
    if (!read.ok()) message.Clear();
  }
  return message;
}

/// Its bytes; 0 where it says nothing.
inline size_t BytesSaid(const std::optional<LinkOwner::Outgoing>& outgoing) {
  return outgoing.has_value() ? outgoing->message.Length() : 0;
}

/// Makes links that are never started.
class IdleLinks final : public LinkOwner {
 public:
  std::shared_ptr<ClientLink> Make() { return MakeLink(); }

 private:
  std::optional<Outgoing> NextMessage(const ClientLink*) override { return std::nullopt; }
  void OnMessage(const ClientLink*, const grpc::ByteBuffer&) override {}
  void OnLinkDone(const ClientLink*, const absl::Status&) override {}
};

}  // namespace troupe::rpc
