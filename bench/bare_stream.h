#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace troupe::bench {

/// Which of gRPC's APIs an end uses.
enum class StreamApi {
  kCallback,         ///< reactors, as lib/rpc
  kCompletionQueue,  ///< one completion queue, polled by one thread
};

/// Counts the bytes of ByteBuffer messages that come on bidirectional streams and does nothing else: what gRPC itself
/// can move, with lib/rpc's settings. Stops with its destructor.
class BareReceiver {
 public:
  virtual ~BareReceiver() = default;
  virtual std::string address() const = 0;
  virtual int64_t bytes() const = 0;
};
std::unique_ptr<BareReceiver> StartBareReceiver(StreamApi api, const std::string& address);

/// Sends messages of `message_bytes` (borrowed slices, never copied by us) to `address` until the connection breaks;
/// blocks.
void RunBareSender(StreamApi api, const std::string& address, int64_t message_bytes);

}  // namespace troupe::bench
