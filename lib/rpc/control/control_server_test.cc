// The control socket's door: who comes in, who is turned away, and that it stays a door.

#include "lib/rpc/control/control_server.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lib/rpc/control/control_client.h"
#include "lib/rpc/control/monitor_client.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;
constexpr int kPatienceMs = 20000;

/// What becomes of a connection to `path`: 's' the server speaks (HTTP/2 settings come unasked), 'c' it is closed
/// without a word, 'n' it could not be made, 't' nothing in time.
char Knock(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  char result = 'n';
  if (connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0) {
    pollfd event{fd, POLLIN, 0};
    char byte = 0;
    result = poll(&event, 1, kPatienceMs) != 1 ? 't' : (read(fd, &byte, 1) > 0 ? 's' : 'c');
  }
  close(fd);
  return result;
}

/// The same by another user, from a child process that becomes `uid`; 'x': not the same every time.
char KnockAs(uid_t uid, const std::string& path, int times) {
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(uid) != 0) _exit('f');
    for (int i = 1; i < times; ++i) {
      if (Knock(path) != 'c') _exit('x');
    }
    _exit(Knock(path));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return static_cast<char>(WEXITSTATUS(status));
}

class ControlServerTest : public testing::Test {
 protected:
  ControlServerTest() {
    std::string path = "/tmp/troupe_control_XXXXXX";  // short: Knock dials by path
    run_ = mkdtemp(path.data());
  }
  ~ControlServerTest() override {
    server_.reset();
    fs::remove_all(run_);
  }
  void Start(uid_t learner = geteuid()) {
    auto server = ControlServer::Start(run_, &endpoint_, &endpoint_, learner);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  /// As another user's process: closed without a word every time.
  void ExpectTurnedAway(int times) {
    if (geteuid() == 0) {
      Start();
      // As if somebody had opened the folder and the socket: the check is not the file modes'.
      fs::permissions(run_, fs::perms::all);
      fs::permissions(run_ + "/control", fs::perms::all);
      fs::permissions(path(), fs::perms::all);
      EXPECT_EQ(KnockAs(kNobody, path(), times), 'c');
      EXPECT_EQ(KnockAs(0, path(), 1), 's');
    } else {
      // No other user can be had here: the learner is another's.
      Start(geteuid() + 1);
      for (int i = 0; i < times; ++i) EXPECT_EQ(Knock(path()), 'c');
    }
    EXPECT_TRUE(endpoint_.callers().empty());
  }
  std::string path() const { return run_ + "/control/control.sock"; }

  std::string run_;
  FakeEndpoint endpoint_;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, TheLearnersUserLooksAndChanges) {
  Start();
  const auto client = ControlClient::Connect(path());
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(*(*client)->Checkpoint("", absl::Seconds(10)), 456);
  EXPECT_EQ(MonitorClient::AtControlSocket(path())->Status(absl::Seconds(10))->run_name, "fake");
  EXPECT_TRUE((*client)->Drain("deploy", absl::Seconds(10)).ok());
  ASSERT_EQ(endpoint_.callers().size(), 3u);
  for (const Caller& caller : endpoint_.callers()) EXPECT_EQ(caller.kind, Caller::Kind::kControlSocket);
}

TEST_F(ControlServerTest, AnotherUserIsTurnedAwayUnheard) { ExpectTurnedAway(1); }

TEST_F(ControlServerTest, WhoIsTurnedAwayTakesNothingWithHim) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{std::min<rlim_t>(limit.rlim_cur, 64), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  ExpectTurnedAway(200);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_F(ControlServerTest, TheFileModesKeepAnotherUserOutAlready) {
  Start();
  struct stat folder {
  }, socket{};
  ASSERT_EQ(stat((run_ + "/control").c_str(), &folder), 0);
  ASSERT_EQ(stat(path().c_str(), &socket), 0);
  EXPECT_EQ(folder.st_mode & 07777, 0700u);
  EXPECT_EQ(socket.st_mode & 07777, 0600u);
  if (geteuid() == 0) {
    fs::permissions(run_, fs::perms::all);
    EXPECT_EQ(KnockAs(kNobody, path(), 1), 'n');
  }
}

TEST_F(ControlServerTest, RunningOutOfDescriptorsIsNotTheEnd) {
  Start();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<int> idle;
  const auto dial = [this] {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path().copy(name.sun_path, sizeof(name.sun_path) - 1);
    if (fd < 0) return fd;
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    return fd;
  };
  // Both ends are this process's: every other descriptor goes to the door, until there are none for it.
  const rlimit few{std::min<rlim_t>(limit.rlim_cur, 64), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int fd = dial(); fd >= 0; fd = dial()) idle.push_back(fd);
  EXPECT_GT(idle.size(), 4u);
  for (const int fd : idle) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(Knock(path()), 's');
}

TEST_F(ControlServerTest, AChangeInProgressIsAnsweredBeforeItShutsDown) {
  Start();
  const auto client = ControlClient::Connect(path());
  ASSERT_TRUE(client.ok());
  endpoint_.SetChangeResult(7);
  EXPECT_EQ(*(*client)->ChangePolicies(policy::RemovePolicy{policy::PolicyId("p")}, absl::Seconds(10)), 7);
  server_.reset();
  EXPECT_FALSE(fs::exists(run_ + "/control"));
  EXPECT_EQ((*client)->ChangePolicies(policy::RemovePolicy{policy::PolicyId("p")}, absl::Seconds(10)).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace troupe::rpc
