#include "lib/rpc/door/address.h"

#include <string>

#include "lib/rpc/transport/transport.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

TEST(AddressTest, ReadsTheThreeForms) {
  auto unix_socket = ParseAddress("unix:/tmp/a/learner.sock");
  ASSERT_TRUE(unix_socket.ok());
  EXPECT_EQ(unix_socket->kind, Address::Kind::kUnix);
  EXPECT_EQ(unix_socket->path, "/tmp/a/learner.sock");
  auto abstract = ParseAddress("unix-abstract:troupe-7");
  ASSERT_TRUE(abstract.ok());
  EXPECT_EQ(abstract->kind, Address::Kind::kAbstract);
  EXPECT_EQ(abstract->path, "troupe-7");
  auto tcp = ParseAddress("learner.example:5055");
  ASSERT_TRUE(tcp.ok());
  EXPECT_EQ(tcp->host, "learner.example");
  EXPECT_EQ(tcp->port, 5055);
  auto v6 = ParseAddress("[::1]:80");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
}

TEST(AddressTest, RefusesEverythingElseAndSaysWhatItExpects) {
  for (const char* bad :
       {"", "unix:", "unix-abstract:", "localhost", "localhost:", "localhost:x", "localhost:65536", "localhost:-1",
        ":5055", "::1:5055", "http://a:80", "dns:///a:80", "a,b:80", "127.1:80", "127.0.0.256:80", "2130706433:80"}) {
    const auto address = ParseAddress(bad);
    ASSERT_FALSE(address.ok()) << bad;
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(address.status().message().find("unix:PATH"), std::string::npos) << address.status();
  }
  EXPECT_FALSE(ParseAddress("unix:/" + std::string(200, 'x')).ok());
}

TEST(AddressTest, KnowsWhatStaysOnThisMachine) {
  for (const char* local :
       {"unix:/a", "unix-abstract:a", "localhost:1", "127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(ParseAddress(local)->local()) << local;
  }
  for (const char* remote : {"0.0.0.0:1", "[::]:1", "10.0.0.7:1", "learner:1", "127.evil.example:1", "localhost.:1"}) {
    EXPECT_FALSE(ParseAddress(remote)->local()) << remote;
  }
}

TEST(AddressTest, PlainTextBeyondTheMachineNeedsItsFlag) {
  const absl::Status refused = CheckTransportPolicy(*ParseAddress("0.0.0.0:5055"), {});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("--insecure-plaintext-network"), std::string::npos);
  EXPECT_TRUE(CheckTransportPolicy(*ParseAddress("0.0.0.0:5055"), {.insecure_plaintext_network = true}).ok());
  EXPECT_TRUE(CheckTransportPolicy(*ParseAddress("127.0.0.1:5055"), {}).ok());
}

}  // namespace
}  // namespace troupe::rpc
