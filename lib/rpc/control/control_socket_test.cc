#include "lib/rpc/control/control_socket.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

namespace fs = std::filesystem;

class ControlSocketTest : public testing::Test {
 protected:
  ControlSocketTest() {
    std::string path = testing::TempDir() + "/control_XXXXXX";
    root_ = mkdtemp(path.data());
    run_ = root_ + "/run";
    elsewhere_ = root_ + "/elsewhere";
    fs::create_directories(run_);
    fs::create_directories(elsewhere_);
  }
  ~ControlSocketTest() override { fs::remove_all(root_); }

  static mode_t ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  std::string root_, run_, elsewhere_;
};

TEST(MayControlTest, TheLearnersUserAndRoot) {
  EXPECT_TRUE(MayControl(1000, 1000));
  EXPECT_TRUE(MayControl(0, 1000));
  EXPECT_TRUE(MayControl(0, 0));
  EXPECT_FALSE(MayControl(1001, 1000));
  EXPECT_FALSE(MayControl(1000, 0)) << "root's learner is root's";
  EXPECT_FALSE(MayControl(65534, 1000));
  EXPECT_FALSE(MayControl(-1, 1000)) << "whom the kernel does not tell";
  EXPECT_FALSE(MayControl(-1, static_cast<uid_t>(-1)));
}

TEST_F(ControlSocketTest, LiesInAPrivateFolderOfTheRunAndGoesWithItsObject) {
  const std::string socket = run_ + "/control/control.sock";
  {
    const auto listening = ControlSocket::Listen(run_, elsewhere_);
    ASSERT_TRUE(listening.ok()) << listening.status();
    EXPECT_EQ((*listening)->place(), "control/control.sock");
    EXPECT_EQ(ModeOf(run_ + "/control"), 0700u);
    EXPECT_EQ(ModeOf(socket), 0600u);
    EXPECT_TRUE(DialControl(socket).ok());
  }
  EXPECT_FALSE(fs::exists(run_ + "/control"));
  EXPECT_TRUE(fs::is_empty(elsewhere_));
  EXPECT_EQ(DialControl(socket).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ControlSocketTest, APathOfAnyLengthIsListenedAtAndDialled) {
  std::string run = run_;
  for (int i = 0; i < 5; ++i) run += "/" + std::string(200, 'x');
  fs::create_directories(run);
  const auto listening = ControlSocket::Listen(run, elsewhere_);
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_EQ((*listening)->place(), "control/control.sock");
  const auto channel = DialControl(run + "/control/control.sock");
  EXPECT_TRUE(channel.ok()) << channel.status();
}

TEST_F(ControlSocketTest, WhatAKilledLearnerLeftIsNotInTheWay) {
  fs::create_directories(run_ + "/control");
  fs::permissions(run_ + "/control", fs::perms::all);
  const int stale = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  (run_ + "/control/control.sock").copy(name.sun_path, sizeof(name.sun_path) - 1);
  ASSERT_EQ(bind(stale, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  close(stale);
  const auto listening = ControlSocket::Listen(run_, elsewhere_);
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_EQ((*listening)->place(), "control/control.sock");
  EXPECT_EQ(ModeOf(run_ + "/control"), 0700u) << "closed again";
  EXPECT_TRUE(DialControl(run_ + "/control/control.sock").ok());
}

TEST_F(ControlSocketTest, ASocketThatNobodyListensAtSaysSo) {
  const std::string path = run_ + "/control/control.sock";
  {
    const auto listening = ControlSocket::Listen(run_, elsewhere_);
    fs::create_directories(root_ + "/kept");
    fs::rename(path, root_ + "/kept/control.sock");  // outlives its owner, as after kill -9
  }
  EXPECT_EQ(DialControl(root_ + "/kept/control.sock").status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ControlSocketTest, WhereTheRunCannotHoldASocketItLiesElsewhere) {
  // Stands for a file system without sockets: the folder cannot be had.
  std::ofstream(run_ + "/control") << "a file";
  std::string place;
  {
    const auto listening = ControlSocket::Listen(run_, elsewhere_);
    ASSERT_TRUE(listening.ok()) << listening.status();
    place = (*listening)->place();
    EXPECT_EQ(place.find(elsewhere_ + "/troupe-"), 0u) << place;
    EXPECT_EQ(ModeOf(fs::path(place).parent_path()), 0700u);
    EXPECT_EQ(ModeOf(place), 0600u);
    EXPECT_TRUE(DialControl(place).ok());
  }
  EXPECT_TRUE(fs::is_empty(elsewhere_)) << "removed with its folder";
}

TEST_F(ControlSocketTest, ALinkInTheFoldersPlaceIsNotFollowed) {
  fs::create_directories(root_ + "/victim");
  std::ofstream(root_ + "/victim/control.sock") << "somebody's file";
  fs::create_symlink(root_ + "/victim", run_ + "/control");
  const auto listening = ControlSocket::Listen(run_, elsewhere_);
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_NE((*listening)->place(), "control/control.sock");
  EXPECT_TRUE(fs::is_regular_file(root_ + "/victim/control.sock"));
}

TEST_F(ControlSocketTest, NeitherPlaceIsAClearError) {
  std::ofstream(run_ + "/control") << "a file";
  const auto listening = ControlSocket::Listen(run_, root_ + "/gone");
  EXPECT_EQ(listening.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(listening.status().message()).find(root_ + "/gone"), std::string::npos) << listening.status();
}

TEST_F(ControlSocketTest, AFolderThatIsALinkIsNotDialledThrough) {
  auto socket = ControlSocket::Listen(run_, "");
  ASSERT_TRUE(socket.ok()) << socket.status();
  const std::string foreign = root_ + "/foreign";
  fs::create_directory(foreign);
  fs::create_directory_symlink(run_ + "/control", foreign + "/control");
  EXPECT_TRUE(DialControl(run_ + "/control/control.sock").ok());
  EXPECT_EQ(DialControl(foreign + "/control/control.sock").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ControlSocketTest, OnlyControlSocketsAreDialled) {
  // RUN/address may have been written by anybody.
  for (const char* path : {"/var/run/docker.sock", "control.sock", "", "/tmp/x/control.sock/"}) {
    EXPECT_EQ(DialControl(path).status().code(), absl::StatusCode::kInvalidArgument) << path;
  }
}

TEST_F(ControlSocketTest, TheRuntimeDirectoryIsTakenIfItIsPrivate) {
  const std::string runtime = root_ + "/runtime";
  fs::create_directories(runtime);
  fs::permissions(runtime, fs::perms::owner_all);
  ASSERT_EQ(setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1), 0);
  ASSERT_EQ(setenv("TMPDIR", elsewhere_.c_str(), 1), 0);
  EXPECT_EQ(RuntimeDirectory(), runtime);
  fs::permissions(runtime, fs::perms::all);
  EXPECT_EQ(RuntimeDirectory(), elsewhere_) << "others may write there";
  ASSERT_EQ(setenv("XDG_RUNTIME_DIR", "relative", 1), 0);
  EXPECT_EQ(RuntimeDirectory(), elsewhere_);
  ASSERT_EQ(unsetenv("TMPDIR"), 0);
  EXPECT_EQ(RuntimeDirectory(), "/tmp");
  ASSERT_EQ(unsetenv("XDG_RUNTIME_DIR"), 0);
}

}  // namespace
}  // namespace troupe::rpc
