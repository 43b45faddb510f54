#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <google/protobuf/io/zero_copy_stream.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

namespace troupe::rpc {

/// The bytes of a received message as gRPC holds them: a list of reference-counted slices. Reading copies nothing.
/// Movable; not thread-safe.
class SliceList {
 public:
  /// INTERNAL when gRPC cannot give the bytes (a compressed or broken message).
  static absl::StatusOr<SliceList> From(const grpc::ByteBuffer& buffer);
  explicit SliceList(std::vector<grpc::Slice> slices);

  size_t size() const { return size_; }
  const std::vector<grpc::Slice>& slices() const { return slices_; }

  /// Copies [offset, offset + bytes), which lies inside, to `to` and returns its CRC-32C, taken while the copy is in
  /// the cache.
  uint32_t CopyWithCrc(size_t offset, size_t bytes, std::byte* to) const;

 private:
  std::vector<grpc::Slice> slices_;
  size_t size_ = 0;
};

/// Protobuf's view of a SliceList. Borrows it; not thread-safe.
class SliceInputStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SliceInputStream(const SliceList& list) : list_(list) {}

  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return consumed_; }

 private:
  const SliceList& list_;
  size_t slice_ = 0;
  size_t position_ = 0;  ///< within slice_
  int64_t consumed_ = 0;
};

/// A protobuf message whose large `payload` (field 15, bytes) was left where it is.
struct SplitMessage {
  std::string fields;  ///< every other field, a valid encoding of the message without its payload
  bool has_payload = false;
  size_t payload_offset = 0;  ///< in the SliceList
  size_t payload_bytes = 0;
};

/// Walks the top-level fields of any valid encoding, in whatever order they come; when there are several payloads the
/// last counts, as protobuf has it. INVALID_ARGUMENT when it is no protobuf message or its fields exceed
/// `max_fields_bytes`.
absl::StatusOr<SplitMessage> SplitPayload(const SliceList& list, size_t max_fields_bytes);

/// Collects the slices of a message to send: small pieces are copied together, large ones are borrowed.
class SliceBuilder {
 public:
  /// Copies.
  void Append(const void* data, size_t bytes);
  void AppendZeros(size_t bytes);
  /// Borrows memory that `owner` keeps alive until gRPC is done with it; small pieces are copied instead.
  void AppendBorrowed(const void* data, size_t bytes, const std::shared_ptr<const void>& owner);
  /// The message; the builder is empty again.
  grpc::ByteBuffer Build();

 private:
  void FlushSmall();

  std::string small_;
  std::vector<grpc::Slice> slices_;
};

/// Appends `message`'s serialization followed by the tag and length of a `payload` of `payload_bytes`, which the caller
/// appends next.
void AppendFieldsAndPayloadTag(const std::string& fields, size_t payload_bytes, SliceBuilder& builder);

}  // namespace troupe::rpc
