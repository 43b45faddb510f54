#include "lib/rpc/transport.h"

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

}  // namespace
}  // namespace troupe::rpc
