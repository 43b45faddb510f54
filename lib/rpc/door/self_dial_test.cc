#include "lib/rpc/door/self_dial.h"

#include <unistd.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/rpc/door/listening_socket.h"
#include "lib/rpc/query_server.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

constexpr absl::Duration kAgesAway = absl::Seconds(60);

TEST(SelfDialTest, AServerAnswersAtEachKindOfAddress) {
  const auto server = QueryServer::Start(
      {"127.0.0.1:0", "localhost:0", absl::StrCat("unix-abstract:troupe_self_dial_", getpid())}, {}, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  for (int i = 0; i < 3; ++i) EXPECT_EQ((*server)->DialSelf(kAgesAway), absl::OkStatus());
}

TEST(SelfDialTest, AServerAtEveryAddressAnswersAtTheLoopback) {
  const auto server = QueryServer::Start({"0.0.0.0:0"}, {.insecure_plaintext_network = true}, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->DialSelf(kAgesAway), absl::OkStatus());
}

TEST(SelfDialTest, ALivingProcessThatDoesNotAcceptIsFoundOut) {
  const auto deaf = ListeningSockets::Open(*ParseAddress("127.0.0.1:0"));
  ASSERT_TRUE(deaf.ok()) << deaf.status();
  PeerBook peers;
  EXPECT_EQ(DialSelf(deaf->address(), &peers, absl::Milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(SelfDialTest, AClosedPortIsUnavailable) {
  Address address;
  {
    const auto closed = ListeningSockets::Open(*ParseAddress("127.0.0.1:0"));
    ASSERT_TRUE(closed.ok()) << closed.status();
    address = closed->address();
  }
  PeerBook peers;
  EXPECT_EQ(DialSelf(address, &peers, kAgesAway).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace troupe::rpc
