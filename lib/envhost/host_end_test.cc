// How processes and their environments end.

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/envhost/host_pool.h"
#include "lib/envhost/testing/player.h"
#include "lib/envhost/testing/processes.h"

namespace troupe::envhost {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostEndTest, AnEnvironmentThatWasOnlyDescribedIsClosed) {
  TemporaryFolder folder;
  const std::string log = folder.File("log");
  auto pool = MakePool("counter", Options(1), {{"log", log}});
  ASSERT_TRUE(pool.ok());
  ASSERT_TRUE((*pool)->MakeEnv().ok());
  *pool = nullptr;
  EXPECT_EQ(CountLines(log, "made"), 1);
  EXPECT_EQ(CountLines(log, "closed"), 1);
}

TEST(HostEndTest, TheSpareOnesEnvironmentIsClosed) {
  TemporaryFolder folder;
  const std::string log = folder.File("log");
  auto pool = MakePool("counter", Options(1), {{"log", log}});
  ASSERT_TRUE(pool.ok());
  {
    Player player(**pool);
    ASSERT_TRUE(player.Reset().ok());
    ASSERT_EQ(kill((*pool)->PidsForTesting()[0], SIGKILL), 0);
    EXPECT_FALSE(player.Step(0).ok());
    ASSERT_TRUE(player.Reset().ok());
    ASSERT_TRUE(Await([&] { return CountLines(log, "made") >= 3; }))
        << "the one that was killed, the one in its place, the spare one";
  }
  *pool = nullptr;
  EXPECT_EQ(CountLines(log, "made"), 3);
  EXPECT_EQ(CountLines(log, "closed"), 2);
}

TEST(HostEndTest, ProcessesThatStartCloseWhatTheyMake) {
  TemporaryFolder folder;
  const std::string log = folder.File("log");
  auto pool = MakePool("counter", Options(4), {{"log", log}});
  ASSERT_TRUE(pool.ok());
  {
    std::vector<std::unique_ptr<Player>> players;
    for (uint32_t i = 0; i < 4; ++i) players.push_back(std::make_unique<Player>(**pool, i));
    ASSERT_TRUE(players[0]->Reset().ok());
  }
  *pool = nullptr;
  EXPECT_GE(CountLines(log, "made"), 1);
  EXPECT_EQ(CountLines(log, "made"), CountLines(log, "closed"));
}

TEST(HostEndTest, AnEndIsNoticedWhereSigchldIsIgnored) {
  struct Ignored {
    Ignored() : before(signal(SIGCHLD, SIG_IGN)) {}
    ~Ignored() { signal(SIGCHLD, before); }
    sighandler_t before;
  } ignored;
  auto pool = MakePool("counter", Options(1));
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  ASSERT_EQ(kill((*pool)->PidsForTesting()[0], SIGKILL), 0);
  EXPECT_THAT(std::string(player.Step(0).message()), HasSubstr("how is not known: SIGCHLD is ignored"));
  EXPECT_TRUE(player.Reset().ok());
  EXPECT_TRUE(player.Step(0).ok());
  EXPECT_EQ((*pool)->stats().deaths, 1);
}

TEST(HostEndTest, ARestartThatFailsIsSpent) {
  TemporaryFolder folder;
  const std::string python = folder.File("python");
  std::ofstream(python) << "#!/bin/sh\nexec " << TROUPE_TEST_PYTHON << " \"$@\"\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  HostOptions options = Options(1);
  options.interpreter = python;
  options.max_restarts = 2;
  auto pool = MakePool("counter", options);
  ASSERT_TRUE(pool.ok());
  Player player(**pool);
  ASSERT_TRUE(player.Reset().ok());
  ASSERT_EQ(kill((*pool)->PidsForTesting()[0], SIGKILL), 0);
  EXPECT_FALSE(player.Step(0).ok());
  std::filesystem::remove(python);
  for (int i = 0; i < 2; ++i) EXPECT_THAT(std::string(player.Reset().message()), HasSubstr("cannot start"));
  const absl::Status status = player.Reset();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("restarted 2 times"), HasSubstr("signal 9")));
  EXPECT_EQ((*pool)->stats().deaths, 1);
  EXPECT_EQ((*pool)->stats().restarts, 0);
}

}  // namespace
}  // namespace troupe::envhost
