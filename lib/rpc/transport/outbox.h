#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include <grpcpp/support/byte_buffer.h>

namespace troupe::rpc {

/// What a stream has to send, in order. Bounded: a peer need not read what it is sent, and brings about as much of it
/// as it likes. Not thread-safe.
class Outbox {
 public:
  /// Of messages that wait: an honest worker's are the acknowledgements of 1024 fragments at most, its grants, and
  /// policy tables of up to 4 MiB.
  static constexpr size_t kMaxMessages = 8192;
  static constexpr size_t kMaxBytes = size_t{16} << 20;

  /// False: it is full, and `message` is not in it. One message always fits.
  bool Push(grpc::ByteBuffer message) {
    const size_t bytes = message.Length();
    if (!messages_.empty() && (messages_.size() >= kMaxMessages || bytes_ + bytes > kMaxBytes)) return false;
    bytes_ += bytes;
    messages_.push_back(std::move(message));
    return true;
  }
  /// Before all others, however full it is.
  void PushFirst(grpc::ByteBuffer message) {
    bytes_ += message.Length();
    messages_.push_front(std::move(message));
  }
  bool empty() const { return messages_.empty(); }
  /// The first one; it is not empty.
  grpc::ByteBuffer Take() {
    grpc::ByteBuffer message = std::move(messages_.front());
    messages_.pop_front();
    bytes_ -= message.Length();
    return message;
  }
  void Clear() {
    messages_.clear();
    bytes_ = 0;
  }

 private:
  std::deque<grpc::ByteBuffer> messages_;
  size_t bytes_ = 0;
};

}  // namespace troupe::rpc
