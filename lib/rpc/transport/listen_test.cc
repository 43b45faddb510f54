#include "lib/rpc/transport/listen.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/rpc/door/descriptor.h"
#include "proto/troupe/v1/monitor.grpc.pb.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

/// A connection to the socket at `path`; without a descriptor when nobody listens there.
Descriptor Connect(const std::string& path) {
  Descriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  if (connect(client.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) return {};
  return client;
}

/// Whether the server closes its end of `client` within 5 s, whatever it sends before.
bool IsEnded(const Descriptor& client) {
  pollfd end = {.fd = client.fd(), .events = POLLRDHUP, .revents = 0};
  return poll(&end, 1, 5'000) == 1;
}

// gRPC neither serves nor closes what it is given while it shuts down: who comes just then would wait for ever.
TEST(ListenTest, WhoComesWhileItShutsDownIsNotLeftWaiting) {
  constexpr int kServers = 100;
  const std::string path = absl::StrCat(testing::TempDir(), "/listen_test.", getpid());
  v1::Monitor::Service service;
  int came = 0, left_waiting = 0;
  for (int i = 0; i < kServers; ++i) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    auto server = StartListening(builder, {absl::StrCat("unix:", path)}, {});
    ASSERT_TRUE(server.ok()) << server.status();
    std::vector<Descriptor> clients;
    std::atomic<bool> first = false;
    std::thread newcomers([&] {
      for (Descriptor client = Connect(path); client.valid(); client = Connect(path)) {
        clients.push_back(std::move(client));
        first = true;
      }
    });
    while (!first) std::this_thread::yield();
    server->Shutdown(absl::ZeroDuration());
    newcomers.join();
    came += static_cast<int>(clients.size());
    for (const Descriptor& client : clients) left_waiting += IsEnded(client) ? 0 : 1;
    if (left_waiting > 0) break;
  }
  EXPECT_GE(came, kServers);
  EXPECT_EQ(left_waiting, 0) << "of " << came;
}

}  // namespace
}  // namespace troupe::rpc
