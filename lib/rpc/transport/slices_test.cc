#include "lib/rpc/transport/slices.h"

#include <cstring>
#include <string>
#include <vector>

#include "lib/base/crc32c.h"
#include "lib/base/philox.h"
#include "lib/rpc/transport/limits.h"
#include "proto/troupe/v1/rollout.pb.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

/// `bytes` cut at random places.
SliceList Cut(const std::string& bytes, base::PhiloxSequence& random, size_t max_piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size();) {
    const size_t piece = std::min(bytes.size() - at, size_t{1} + random() % max_piece);
    slices.emplace_back(bytes.substr(at, piece));
    at += piece;
  }
  return SliceList(std::move(slices));
}

base::PhiloxSequence Random(uint32_t n) {
  return base::PhiloxSequence(base::PhiloxKey::Make(7, base::RandomStream::kTest), {n, 0, 0, 0});
}

TEST(SlicesTest, CopiesAnyRangeWithItsChecksum) {
  base::PhiloxSequence random = Random(1);
  std::string bytes(200'000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  for (int trial = 0; trial < 50; ++trial) {
    const SliceList list = Cut(bytes, random, trial % 2 == 0 ? 64 : 70'000);
    const size_t offset = random() % bytes.size();
    const size_t count = random() % (bytes.size() - offset + 1);
    std::vector<std::byte> copy(count);
    const uint32_t crc = list.CopyWithCrc(offset, count, copy.data());
    EXPECT_EQ(std::memcmp(copy.data(), bytes.data() + offset, count), 0);
    EXPECT_EQ(crc, base::Crc32c(bytes.data() + offset, count));
  }
}

TEST(SlicesTest, FindsThePayloadWhereverItStands) {
  v1::WorkerMessage message;
  message.mutable_fragment()->set_sequence(9);
  const std::string fields = message.SerializeAsString();
  message.set_payload("the payload");
  v1::WorkerMessage only_payload;
  only_payload.set_payload("the payload");
  v1::WorkerMessage other_payload;
  other_payload.set_payload("replaced");
  base::PhiloxSequence random = Random(2);
  // Last, first, twice, between two parts of one submessage (which protobuf merges).
  v1::WorkerMessage more;
  more.mutable_fragment()->set_iteration(4);
  for (const std::string& bytes : {message.SerializeAsString(), only_payload.SerializeAsString() + fields,
                                   other_payload.SerializeAsString() + fields + only_payload.SerializeAsString(),
                                   fields + only_payload.SerializeAsString() + more.SerializeAsString()}) {
    const SliceList list = Cut(bytes, random, 3);
    const auto split = SplitPayload(list, kMaxFieldsBytes);
    ASSERT_TRUE(split.ok()) << split.status();
    ASSERT_TRUE(split->has_payload);
    std::string payload(split->payload_bytes, '\0');
    list.CopyWithCrc(split->payload_offset, split->payload_bytes, reinterpret_cast<std::byte*>(payload.data()));
    EXPECT_EQ(payload, "the payload");
    v1::WorkerMessage parsed, expected;
    ASSERT_TRUE(parsed.ParseFromString(split->fields));
    ASSERT_TRUE(expected.ParseFromString(bytes));
    expected.clear_payload();
    EXPECT_EQ(parsed.SerializeAsString(), expected.SerializeAsString());
  }
}

TEST(SlicesTest, KeepsUnknownFields) {
  // Field 2000, a varint: a newer peer may send it.
  const std::string unknown = std::string("\x80\x7d\x05", 3);
  const auto split = SplitPayload(SliceList({grpc::Slice(unknown)}), kMaxFieldsBytes);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->fields, unknown);
}

TEST(SlicesTest, RefusesWhatIsNoMessageOrTooLarge) {
  for (const std::string& bad : {std::string("\x7a\xff\xff\xff\xff\x0f", 6),  // payload of 4 GiB
                                 std::string("\x7a\x05"
                                             "abc",
                                             5),  // payload cut off
                                 std::string("\x7a", 1), std::string("\x00", 1), std::string("\x07", 1),
                                 std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11)}) {
    EXPECT_EQ(SplitPayload(SliceList({grpc::Slice(bad)}), kMaxFieldsBytes).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  v1::WorkerMessage message;
  message.mutable_goodbye()->set_reason(std::string(2000, 'x'));
  EXPECT_EQ(SplitPayload(SliceList({grpc::Slice(message.SerializeAsString())}), 1000).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SlicesTest, BorrowsLargePiecesAndKeepsTheirOwnerAlive) {
  auto owner = std::make_shared<std::vector<char>>(100'000, 'x');
  std::weak_ptr<std::vector<char>> watch = owner;
  SliceBuilder builder;
  builder.Append("head", 4);
  builder.AppendBorrowed(owner->data(), owner->size(), owner);
  grpc::ByteBuffer buffer = builder.Build();
  const char* memory = owner->data();
  owner.reset();
  ASSERT_FALSE(watch.expired());
  {
    const auto list = SliceList::From(buffer);
    ASSERT_TRUE(list.ok());
    ASSERT_EQ(list->slices().size(), 2u);
    EXPECT_EQ(reinterpret_cast<const char*>(list->slices()[1].begin()), memory);
  }
  buffer.Clear();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace troupe::rpc
