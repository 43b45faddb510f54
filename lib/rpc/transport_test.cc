#include "lib/rpc/transport.h"

#include <string>

#include "lib/rpc/limits.h"
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

TEST(TransportTest, APeersWordsAreNoCommandToTheTerminalAndNotEndless) {
  const absl::Status status = FromGrpc(
      grpc::Status(grpc::StatusCode::NOT_FOUND, "no policy \"\x1b[2J\"\n  give one of: " + std::string(100000, 'x')));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message().substr(0, 38), "no policy \"\\x1b[2J\"\n  give one of: xxx");
  EXPECT_LT(status.message().size(), kMaxErrorBytes + 10);
}

}  // namespace
}  // namespace troupe::rpc
