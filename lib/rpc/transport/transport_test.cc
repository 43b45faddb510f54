#include "lib/rpc/transport/transport.h"

#include <cstdlib>
#include <string>

#include "lib/rpc/serve/query_server.h"
#include "lib/rpc/transport/grpc_deadline.h"
#include "lib/rpc/transport/limits.h"
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

// Docker writes http_proxy into every container, and gRPC sent even loopback through it: a worker never reached its
// learner.
TEST(TransportTest, TheProxyOfTheEnvironmentIsIgnoredUnlessAskedFor) {
  const auto server = QueryServer::Start({"127.0.0.1:0"}, {}, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  const Address address = *ParseAddress((*server)->addresses()[0]);
  // Nobody is there.
  setenv("grpc_proxy", "http://127.0.0.1:9", 1);
  for (const bool use_http_proxy : {false, true}) {
    const auto channel = MakeChannel(address, {.use_http_proxy = use_http_proxy});
    ASSERT_TRUE(channel.ok()) << channel.status();
    const auto deadline = GrpcDeadline(absl::Seconds(60));
    grpc_connectivity_state state = (*channel)->GetState(/*try_to_connect=*/true);
    while (state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_TRANSIENT_FAILURE) {
      ASSERT_TRUE((*channel)->WaitForStateChange(state, deadline));
      state = (*channel)->GetState(/*try_to_connect=*/true);
    }
    EXPECT_EQ(state, use_http_proxy ? GRPC_CHANNEL_TRANSIENT_FAILURE : GRPC_CHANNEL_READY);
  }
  unsetenv("grpc_proxy");
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
