#include "lib/rpc/transport/outbox.h"

#include <string>

#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

grpc::ByteBuffer Message(size_t bytes) {
  const grpc::Slice slice(std::string(bytes, 'x'));
  return grpc::ByteBuffer(&slice, 1);
}

TEST(OutboxTest, MessagesComeInOrderAndTheFirstOneFirst) {
  Outbox outbox;
  EXPECT_TRUE(outbox.empty());
  for (size_t bytes = 1; bytes <= 3; ++bytes) EXPECT_TRUE(outbox.Push(Message(bytes)));
  outbox.PushFirst(Message(9));
  for (const size_t bytes : {9u, 1u, 2u, 3u}) EXPECT_EQ(outbox.Take().Length(), bytes);
  EXPECT_TRUE(outbox.empty());
}

TEST(OutboxTest, HoldsSoManyMessages) {
  Outbox outbox;
  for (size_t i = 0; i < Outbox::kMaxMessages; ++i) ASSERT_TRUE(outbox.Push(Message(20))) << i;
  EXPECT_FALSE(outbox.Push(Message(20)));
  outbox.Take();
  EXPECT_TRUE(outbox.Push(Message(20)));
  outbox.Clear();
  EXPECT_TRUE(outbox.empty());
  EXPECT_TRUE(outbox.Push(Message(20)));
}

TEST(OutboxTest, HoldsSoManyBytesAndOneMessageOfAnySize) {
  Outbox outbox;
  EXPECT_TRUE(outbox.Push(Message(Outbox::kMaxBytes + 1)));
  EXPECT_FALSE(outbox.Push(Message(1)));
  outbox.PushFirst(Message(1));
  EXPECT_EQ(outbox.Take().Length(), 1u);
  outbox.Take();
  for (size_t bytes = 0; bytes < Outbox::kMaxBytes; bytes += size_t{1} << 20)
    ASSERT_TRUE(outbox.Push(Message(1 << 20)));
  EXPECT_FALSE(outbox.Push(Message(1)));
}

}  // namespace
}  // namespace troupe::rpc
