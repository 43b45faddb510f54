#include "lib/rpc/transport/parsed_size.h"

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

namespace troupe::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr size_t kLeastLimit = size_t{8} << 20;
/// A tag and a length of 0, or a number.
constexpr size_t kLeastBytesOfPart = 2;
/// What an allocation of its own costs beside its bytes, with the pointer to it.
constexpr size_t kObjectBytes = 24;
/// A field that is kept without being known, in a list that doubles as it grows.
constexpr size_t kUnknownFieldBytes = 32;

/// Adds up what a message will take. Any end before that of the bytes is an error of theirs or of the limit.
class Census {
 public:
  explicit Census(const ParsedLimit& limit) : limit_(limit) {}

  bool too_large() const { return bytes_ > limit_.max_bytes; }
  bool too_many() const { return parts_ > limit_.max_parts; }

  /// False for bytes that are no message of `type`, and for what is beyond the limit.
  bool Walk(const google::protobuf::Descriptor& type, CodedInputStream& input) {
    while (!too_large() && !too_many()) {
      const uint32_t tag = input.ReadTag();
      if (tag == 0) return input.ConsumedEntireMessage();
      const FieldDescriptor* const field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (!Field(tag, field, input)) return false;
    }
    return false;
  }

 private:
  bool Field(uint32_t tag, const FieldDescriptor* field, CodedInputStream& input) {
    const WireFormatLite::WireType wire = WireFormatLite::GetTagWireType(tag);
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT:
      case WireFormatLite::WIRETYPE_FIXED64:
      case WireFormatLite::WIRETYPE_FIXED32:
        // What is encoded as another type than its own is kept as a field that is not known.
        if (field == nullptr || wire != WireOf(*field)) {
          bytes_ += kUnknownFieldBytes;
          ++parts_;
        } else if (field->is_repeated()) {
          bytes_ += sizeof(uint64_t);
        }
        return WireFormatLite::SkipField(&input, tag);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        break;
      default:
        return false;  // groups: proto3 has none
    }
    ++parts_;
    uint32_t length = 0;
    if (!input.ReadVarint32(&length) || length > INT32_MAX) return false;
    if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE) return SubMessage(*field, length, input);
    if (field != nullptr && field->is_packable()) {
      bytes_ += length * MostBytesOfPackedByte(*field);
    } else {
      const bool known = field != nullptr && wire == WireOf(*field);
      bytes_ += (known ? 0 : kUnknownFieldBytes) + sizeof(std::string) + kObjectBytes + length;
    }
    return input.Skip(static_cast<int>(length));
  }

  bool SubMessage(const FieldDescriptor& field, uint32_t length, CodedInputStream& input) {
    const auto [limit, depth_left] = input.IncrementRecursionDepthAndPushLimit(static_cast<int>(length));
    if (depth_left < 0) return false;
    const google::protobuf::Descriptor& type = *field.message_type();
    bytes_ += ObjectBytes(type);
    if (!Walk(type, input)) return false;
    return input.DecrementRecursionDepthAndPopLimit(limit);
  }

  static WireFormatLite::WireType WireOf(const FieldDescriptor& field) {
    return WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
  }
  /// A packed list takes at most so much for a byte on the wire.
  static size_t MostBytesOfPackedByte(const FieldDescriptor& field) {
    if (WireOf(field) != WireFormatLite::WIRETYPE_VARINT) return 1;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
      case FieldDescriptor::CPPTYPE_UINT64:
        return sizeof(int64_t);
      case FieldDescriptor::CPPTYPE_BOOL:
        return sizeof(bool);
      default:
        return sizeof(int32_t);
    }
  }

  size_t ObjectBytes(const google::protobuf::Descriptor& type) {
    size_t& bytes = object_bytes_[&type];
    if (bytes == 0) {
      const Message* const empty = google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
      TROUPE_CHECK(empty != nullptr);
      bytes = empty->SpaceUsedLong() + kObjectBytes;
    }
    return bytes;
  }

  const ParsedLimit limit_;
  size_t bytes_ = 0;
  size_t parts_ = 0;
  std::map<const google::protobuf::Descriptor*, size_t> object_bytes_;  ///< of an empty object of each type
};

/// `open` gives a stream of the bytes from their beginning.
template <typename Open>
absl::Status ParseCounted(size_t wire_bytes, const ParsedLimit& limit, Message* message, const Open& open) {
  TROUPE_CHECK(limit.max_bytes >= kLeastLimit);
  const auto no_message = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", wire_bytes, " bytes that are no ", message->GetDescriptor()->name()));
  };
  if (wire_bytes > kShortMessageBytes || wire_bytes / kLeastBytesOfPart > limit.max_parts) {
    auto stream = open();
    CodedInputStream input(&stream);
    Census census(limit);
    if (!census.Walk(*message->GetDescriptor(), input)) {
      const std::string what = absl::StrCat("a ", message->GetDescriptor()->name(), " of ", wire_bytes, " bytes ");
      if (census.too_many()) {
        return absl::ResourceExhaustedError(
            absl::StrCat(what, "has more than ", limit.max_parts, " elements and texts, which are all that it needs"));
      }
      if (!census.too_large()) return no_message();
      return absl::ResourceExhaustedError(absl::StrCat(what, "would take more than ", limit.max_bytes,
                                                       " bytes of memory: it has too many elements or fields"));
    }
  }
  auto stream = open();
  return message->ParseFromZeroCopyStream(&stream) ? absl::OkStatus() : no_message();
}

}  // namespace

absl::Status ParseBounded(const SliceList& bytes, const ParsedLimit& limit, Message* message) {
  return ParseCounted(bytes.size(), limit, message, [&bytes] { return SliceInputStream(bytes); });
}

absl::Status ParseBounded(std::string_view bytes, const ParsedLimit& limit, Message* message) {
  return ParseCounted(bytes.size(), limit, message, [&bytes] {
    return google::protobuf::io::ArrayInputStream(bytes.data(), static_cast<int>(bytes.size()));
  });
}

absl::Status ParseBounded(const grpc::ByteBuffer& bytes, const ParsedLimit& limit, Message* message) {
  TROUPE_ASSIGN_OR_RETURN(const SliceList list, SliceList::From(bytes));
  return ParseBounded(list, limit, message);
}

}  // namespace troupe::rpc
