#include "lib/rpc/door/listening_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

absl::StatusOr<ListeningSockets> Open(const std::string& text) { return ListeningSockets::Open(*ParseAddress(text)); }

std::string UniquePath(const std::string& name) {
  return absl::StrCat(::testing::TempDir(), "/", name, ".", getpid(), ".sock");
}

TEST(ListeningSocketsTest, PortZeroBecomesAPort) {
  const auto listening = Open("127.0.0.1:0");
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_EQ(listening->sockets().size(), 1u);
  EXPECT_GT(listening->address().port, 0);
  EXPECT_EQ(listening->address().text, absl::StrCat("127.0.0.1:", listening->address().port));
}

TEST(ListeningSocketsTest, EveryAddressOfANameHasTheSamePort) {
  const auto listening = Open("localhost:0");
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_EQ(listening->address().text, absl::StrCat("localhost:", listening->address().port));
  EXPECT_EQ(Open(listening->address().text).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(ListeningSocketsTest, AnAddressInUseIsRefusedInWords) {
  for (const std::string& text :
       {std::string("127.0.0.1:0"), std::string("0.0.0.0:0"), absl::StrCat("unix-abstract:troupe_listening_", getpid()),
        "unix:" + UniquePath("in_use")}) {
    const auto first = Open(text);
    ASSERT_TRUE(first.ok()) << first.status();
    const auto second = Open(first->address().text);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << text;
    EXPECT_TRUE(absl::StrContains(std::string(second.status().message()), "in use by another process"));
    EXPECT_EQ(first->sockets().size(), 1u);
  }
}

TEST(ListeningSocketsTest, AnAddressOfAnotherMachineIsRefused) {
  EXPECT_EQ(Open("192.0.2.1:0").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ListeningSocketsTest, TheFileOfAKilledServerIsReplacedAndGoesWithTheServer) {
  const std::string path = UniquePath("stale");
  {
    auto killed = Open("unix:" + path);
    ASSERT_TRUE(killed.ok()) << killed.status();
    // A link keeps the file, as a killed process does.
    ASSERT_EQ(link(path.c_str(), (path + ".kept").c_str()), 0);
  }
  ASSERT_EQ(rename((path + ".kept").c_str(), path.c_str()), 0);
  {
    const auto listening = Open("unix:" + path);
    EXPECT_TRUE(listening.ok()) << listening.status();
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(ListeningSocketsTest, AFileThatIsNoSocketIsLeftAlone) {
  const std::string path = UniquePath("precious");
  std::ofstream(path) << "precious";
  EXPECT_FALSE(Open("unix:" + path).ok());
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  unlink(path.c_str());
}

}  // namespace
}  // namespace troupe::rpc
