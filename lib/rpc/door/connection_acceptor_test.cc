#include "lib/rpc/door/connection_acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

/// An acceptor without a thread that keeps what it accepts.
class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  void SetUp() override { Listen("127.0.0.1:0"); }

  void Listen(const std::string& address) {
    auto opened = ListeningSockets::Open(*ParseAddress(address));
    ASSERT_TRUE(opened.ok()) << opened.status();
    port_ = opened->address().port;
    std::vector<ListeningSockets> listening;
    listening.push_back(*std::move(opened));
    AcceptorHooks hooks;
    hooks.wants = [this](const Address&) { return wants_; };
    hooks.admit = [this](const Address&, const Peer& peer) { return admit_ == nullptr || admit_(peer); };
    hooks.hand_over = [this](Descriptor socket, const Peer& peer) {
      peers_.push_back(peer);
      accepted_.push_back(std::move(socket));
    };
    auto acceptor = ConnectionAcceptor::Create(std::move(listening), std::move(hooks));
    ASSERT_TRUE(acceptor.ok()) << acceptor.status();
    acceptor_ = *std::move(acceptor);
  }

  /// A client whose connection the kernel has taken into the listener's queue.
  Descriptor Connect() const {
    Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(port_));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(client.fd(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
    return client;
  }

  /// Whether the other side has closed it.
  static bool Closed(const Descriptor& client) {
    pollfd wait = {.fd = client.fd(), .events = POLLIN, .revents = 0};
    poll(&wait, 1, 1000);
    char byte = 0;
    return recv(client.fd(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
  }

  int port_ = 0;
  bool wants_ = true;
  std::function<bool(const Peer&)> admit_;
  std::vector<Descriptor> accepted_;
  std::vector<Peer> peers_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

/// Takes every descriptor that the process may still have but `left`, until it is destroyed.
class FewDescriptors {
 public:
  explicit FewDescriptors(int left) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lowered = before_;
    lowered.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &lowered);
    while (true) {
      Descriptor taken(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!taken.valid()) break;
      taken_.push_back(std::move(taken));
    }
    taken_.resize(taken_.size() - static_cast<size_t>(left));
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<Descriptor> taken_;
};

/// As many descriptors as the process may have, until it is destroyed.
class ManyDescriptors {
 public:
  ManyDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit raised = before_;
    raised.rlim_cur = raised.rlim_max;
    setrlimit(RLIMIT_NOFILE, &raised);
  }
  ~ManyDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  rlim_t limit() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

TEST_F(ConnectionAcceptorTest, HandsOverWhoComes) {
  const Descriptor client = Connect();
  acceptor_->Step(absl::Seconds(10));
  ASSERT_EQ(accepted_.size(), 1u);
  EXPECT_EQ(peers_[0].host, "127.0.0.1");
  EXPECT_GT(peers_[0].port, 0);
  EXPECT_EQ(fcntl(accepted_[0].fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(fcntl(accepted_[0].fd(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

TEST_F(ConnectionAcceptorTest, WhoIsNotWantedYetWaitsUntilTheKernelsQueueIsAlmostFull) {
  wants_ = false;
  std::vector<Descriptor> clients;
  clients.push_back(Connect());
  acceptor_->Step(absl::Milliseconds(50));
  EXPECT_TRUE(accepted_.empty());
  wants_ = true;
  acceptor_->Step(absl::Seconds(10));
  EXPECT_EQ(accepted_.size(), 1u);
  wants_ = false;
  std::ifstream file("/proc/sys/net/core/somaxconn");
  size_t longest = 0;
  ASSERT_TRUE(file >> longest);
  const size_t waiting = std::min<size_t>(longest, 4096) * 7 / 8;
  const ManyDescriptors many;
  ASSERT_GT(many.limit(), waiting + 1000) << "ulimit -Hn is too low for this test";
  while (clients.size() <= waiting) clients.push_back(Connect());
  acceptor_->Step(absl::Milliseconds(50));
  EXPECT_EQ(accepted_.size(), 1u);
  clients.push_back(Connect());
  acceptor_->Step(absl::Seconds(10));
  EXPECT_GT(accepted_.size(), 1u) << "beyond it newcomers would hear nothing at all";
}

TEST_F(ConnectionAcceptorTest, AUnixSocketTellsTheUser) {
  const std::string name = absl::StrCat("troupe_acceptor_", getpid());
  Listen("unix-abstract:" + name);
  const Descriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  ASSERT_EQ(connect(client.fd(), reinterpret_cast<sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  acceptor_->Step(absl::Seconds(10));
  ASSERT_EQ(peers_.size(), 1u);
  EXPECT_TRUE(peers_[0].unix_socket);
  EXPECT_EQ(peers_[0].uid, static_cast<int64_t>(geteuid()));
}

TEST_F(ConnectionAcceptorTest, WhoIsNotAdmittedIsClosed) {
  admit_ = [](const Peer&) { return false; };
  const Descriptor client = Connect();
  acceptor_->Step(absl::Seconds(10));
  EXPECT_TRUE(accepted_.empty());
  EXPECT_TRUE(Closed(client));
}

// CVE-2023-4785: gRPC's own listener never accepts again once a process has run out of descriptors.
TEST_F(ConnectionAcceptorTest, WithoutDescriptorsNewcomersAreClosedAndItAcceptsAgain) {
  // UBSan looks at a class through a pipe the first time that it meets one, so the logger's are met, by a line with a
  // number in it, before the descriptors are used up.
  TROUPE_WARN("the test is about to use up its descriptors left={}", 4);
  {
    const FewDescriptors few(4);
    std::vector<Descriptor> clients;
    for (int i = 0; i < 2; ++i) clients.push_back(Connect());
    acceptor_->Step(absl::Seconds(10));
    EXPECT_EQ(accepted_.size(), 2u) << "with a descriptor for each of them";
    // The clients have none any more either, so one at a time from here.
    clients.erase(clients.begin());
    accepted_.erase(accepted_.begin());
    for (int i = 0; i < 8; ++i) {
      const Descriptor client = Connect();
      const Descriptor last(open("/dev/null", O_RDONLY | O_CLOEXEC));
      ASSERT_TRUE(last.valid());
      ASSERT_LT(open("/dev/null", O_RDONLY | O_CLOEXEC), 0) << "the test did not use up the descriptors";
      acceptor_->Step(absl::Seconds(10));
      EXPECT_TRUE(Closed(client));
      EXPECT_EQ(acceptor_->num_shed(), i + 1);
    }
  }
  const size_t before = accepted_.size();
  const Descriptor client = Connect();
  acceptor_->Step(absl::Seconds(10));
  EXPECT_EQ(accepted_.size(), before + 1);
}

TEST_F(ConnectionAcceptorTest, AThreadAcceptsUntilItIsStopped) {
  acceptor_->Start();
  const Descriptor client = Connect();
  pollfd wait = {.fd = client.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&wait, 1, 0), 0) << "nobody closes it";
  acceptor_->Stop();
  acceptor_->Stop();
  Descriptor late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port_));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(connect(late.fd(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
}

}  // namespace
}  // namespace troupe::rpc
