#include "lib/rpc/transport.h"

#include "proto/troupe/v1/rollout.pb.h"
#include <grpc/grpc.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

// A process whose last channel went joined gRPC's executor, which may sit in a wait of 10 s: runs ended that much
// later.
TEST(TransportTest, TheLastChannelDoesNotShutGrpcDown) {
  { ASSERT_TRUE(MakeChannel(*ParseAddress("127.0.0.1:1"), {}).ok()); }
  EXPECT_NE(grpc_is_initialized(), 0);
}

// What a stranger sends must not fill a log: Protobuf writes a line for each text that is no UTF-8.
TEST(TransportTest, ABrokenMessageWritesNothing) {
  ASSERT_TRUE(MakeChannel(*ParseAddress("127.0.0.1:1"), {}).ok());
  v1::Goodbye goodbye;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(goodbye.ParseFromString("\x0a\x02\xff\xfe"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace troupe::rpc
