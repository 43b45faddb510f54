#include "lib/rpc/door/self_dial.h"

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/rpc/door/descriptor.h"
#include "lib/rpc/door/listening_socket.h"
#include "lib/rpc/door/resolve.h"
#include "lib/rpc/serve/query_server.h"
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

// A port that answers a crowd is not deaf for the one who waits behind it. A newcomer that greets and asks nothing
// keeps its place at gRPC for 50 ms while others wait, and there are 128 such places.
TEST(SelfDialTest, AServerThatAnswersACrowdIsNotDeaf) {
  const auto server = QueryServer::Start({"127.0.0.1:0"}, {}, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto reached = ResolveTcp(*ParseAddress((*server)->addresses()[0]));
  ASSERT_TRUE(reached.ok()) << reached.status();
  const std::string_view greeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  std::vector<Descriptor> crowd;
  for (int i = 0; i < 1500; ++i) {
    Descriptor& client = crowd.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(client.fd(), (*reached)->ai_addr, (*reached)->ai_addrlen), 0) << i;
    ASSERT_GT(send(client.fd(), greeting.data(), greeting.size(), MSG_NOSIGNAL), 0) << i;
  }
  EXPECT_EQ((*server)->DialSelf(absl::Milliseconds(150)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*server)->DialSelf(kAgesAway), absl::OkStatus());
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
