#include "lib/rpc/transport/caller.h"

#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

TEST(CallerTest, TheDoorAndTheConnectionSayWhoItIs) {
  PeerBook peers;
  peers.Add("unix-abstract:00017", {.host = "10.0.0.9", .port = 4711});
  EXPECT_EQ(MakeCaller(Door::kControl, "unix:", nullptr).kind, Caller::Kind::kControlSocket);
  EXPECT_EQ(MakeCaller(Door::kAddress, "unix:", &peers).kind, Caller::Kind::kUnixSocket);
  EXPECT_EQ(MakeCaller(Door::kAddress, "unix:/tmp/client.sock", &peers).kind, Caller::Kind::kUnixSocket);
  const Caller tcp = MakeCaller(Door::kAddress, "unix-abstract:00017", &peers);
  EXPECT_EQ(tcp.kind, Caller::Kind::kNetwork) << "relayed";
  EXPECT_EQ(tcp.ToString(), "10.0.0.9:4711");
}

TEST(CallerTest, WhatNobodyKnowsIsTheNetwork) {
  EXPECT_EQ(Caller().kind, Caller::Kind::kNetwork);
  for (const char* connection : {"", "control socket", "unix-abstract:00018", "ipv4:127.0.0.1:4711", "unix"}) {
    EXPECT_EQ(MakeCaller(Door::kAddress, connection, nullptr).kind, Caller::Kind::kNetwork) << connection;
  }
  EXPECT_EQ(MakeCaller(Door::kAddress, "ipv4:1.2.3.4:5\n", nullptr).ToString().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace troupe::rpc
