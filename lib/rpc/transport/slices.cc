#include "lib/rpc/transport/slices.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/crc32c.h"
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

namespace troupe::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Field 15 with wire type 2 (length-delimited), in WorkerMessage and WeightUpdate alike.
constexpr uint32_t kPayloadTag = (15u << 3) | 2u;
// Below this a slice of its own (a reference count, an iovec) costs more than copying.
constexpr size_t kBorrowThreshold = 1024;
// A multiple of what Crc32c takes in its fast path (3 x 4 KiB) that still lies in the L1 cache after it was copied.
constexpr size_t kCrcChunk = 2 * 3 * 4096;

}  // namespace

SliceList::SliceList(std::vector<grpc::Slice> slices) : slices_(std::move(slices)) {
  for (const grpc::Slice& slice : slices_) size_ += slice.size();
}

absl::StatusOr<SliceList> SliceList::From(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  const grpc::Status status = buffer.Dump(&slices);
  if (!status.ok()) return absl::InternalError("gRPC gave a message without bytes");
  return SliceList(std::move(slices));
}

uint32_t SliceList::CopyWithCrc(size_t offset, size_t bytes, std::byte* to) const {
  TROUPE_CHECK(offset <= size_ && bytes <= size_ - offset);
  uint32_t crc = 0;
  size_t copied = 0, checked = 0;
  for (const grpc::Slice& slice : slices_) {
    if (copied == bytes) break;
    if (offset >= slice.size()) {
      offset -= slice.size();
      continue;
    }
    size_t left = std::min(slice.size() - offset, bytes - copied);
    const uint8_t* from = slice.begin() + offset;
    offset = 0;
    while (left > 0) {
      const size_t piece = std::min(left, kCrcChunk - (copied - checked));
      std::memcpy(to + copied, from, piece);
      copied += piece;
      from += piece;
      left -= piece;
      if (copied - checked == kCrcChunk) {
        crc = base::Crc32c(to + checked, kCrcChunk, crc);
        checked = copied;
      }
    }
  }
  return base::Crc32c(to + checked, copied - checked, crc);
}

bool SliceInputStream::Next(const void** data, int* size) {
  const std::vector<grpc::Slice>& slices = list_.slices();
  while (slice_ < slices.size() && position_ == slices[slice_].size()) {
    ++slice_;
    position_ = 0;
  }
  if (slice_ == slices.size()) return false;
  *data = slices[slice_].begin() + position_;
  *size = static_cast<int>(slices[slice_].size() - position_);
  consumed_ += *size;
  position_ = slices[slice_].size();
  return true;
}

void SliceInputStream::BackUp(int count) {
  TROUPE_CHECK(count >= 0 && static_cast<size_t>(count) <= position_);
  position_ -= static_cast<size_t>(count);
  consumed_ -= count;
}

bool SliceInputStream::Skip(int count) {
  const void* data;
  int size;
  while (count > 0) {
    if (!Next(&data, &size)) return false;
    if (size > count) {
      BackUp(size - count);
      size = count;
    }
    count -= size;
  }
  return true;
}

absl::StatusOr<SplitMessage> SplitPayload(const SliceList& list, size_t max_fields_bytes) {
  SplitMessage split;
  SliceInputStream stream(list);
  CodedInputStream input(&stream);
  google::protobuf::io::StringOutputStream fields_stream(&split.fields);
  {
    CodedOutputStream output(&fields_stream);
    while (true) {
      const uint32_t tag = input.ReadTag();
      if (tag == 0) break;
      if (tag == kPayloadTag) {
        uint32_t bytes;
        if (!input.ReadVarint32(&bytes)) return absl::InvalidArgumentError("message: payload without a length");
        split.has_payload = true;
        split.payload_offset = static_cast<size_t>(input.CurrentPosition());
        split.payload_bytes = bytes;
        if (bytes > list.size() - split.payload_offset) {
          return absl::InvalidArgumentError(absl::StrCat("message: payload of ", bytes, " bytes, but only ",
                                                         list.size() - split.payload_offset, " follow"));
        }
        if (!input.Skip(static_cast<int>(bytes))) return absl::InvalidArgumentError("message: payload is cut off");
        continue;
      }
      const size_t before = static_cast<size_t>(input.CurrentPosition());
      if (!WireFormatLite::SkipField(&input, tag, &output)) {
        return absl::InvalidArgumentError(absl::StrCat("message: no valid protobuf field at byte ", before));
      }
      if (static_cast<size_t>(output.ByteCount()) > max_fields_bytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("message: more than ", max_fields_bytes, " bytes beside its payload"));
      }
    }
  }
  // Tag 0 is both the end and a bad tag.
  if (!input.ConsumedEntireMessage()) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: no valid protobuf field at byte ", input.CurrentPosition(), " of ", list.size()));
  }
  return split;
}

void SliceBuilder::Append(const void* data, size_t bytes) { small_.append(static_cast<const char*>(data), bytes); }

void SliceBuilder::AppendZeros(size_t bytes) { small_.append(bytes, '\0'); }

void SliceBuilder::AppendBorrowed(const void* data, size_t bytes, const std::shared_ptr<const void>& owner) {
  if (bytes < kBorrowThreshold) {
    Append(data, bytes);
    return;
  }
  FlushSmall();
  auto* keep_alive = new std::shared_ptr<const void>(owner);
  slices_.emplace_back(
      const_cast<void*>(data), bytes, [](void* user) { delete static_cast<std::shared_ptr<const void>*>(user); },
      keep_alive);
}

void SliceBuilder::FlushSmall() {
  if (small_.empty()) return;
  slices_.emplace_back(small_);
  small_.clear();
}

grpc::ByteBuffer SliceBuilder::Build() {
  FlushSmall();
  grpc::ByteBuffer buffer(slices_.data(), slices_.size());
  slices_.clear();  // their references would keep the owners alive
  return buffer;
}

void AppendFieldsAndPayloadTag(const std::string& fields, size_t payload_bytes, SliceBuilder& builder) {
  builder.Append(fields.data(), fields.size());
  uint8_t head[16];
  uint8_t* end = CodedOutputStream::WriteTagToArray(kPayloadTag, head);
  end = CodedOutputStream::WriteVarint64ToArray(payload_bytes, end);
  builder.Append(head, static_cast<size_t>(end - head));
}

}  // namespace troupe::rpc
