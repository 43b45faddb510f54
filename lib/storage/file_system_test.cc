#include "lib/storage/file_system.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

TEST(PosixFileSystemTest, WritesReadsListsAndLinks) {
  const ScratchDirectory scratch;
  FileSystem& fs = FileSystem::Posix();
  const std::string text = "hello";
  ASSERT_TRUE(fs.MakeDirectories(scratch.path() + "/a/b").ok());
  ASSERT_TRUE(fs.WriteNewFile(scratch.path() + "/a/f", {AsPiece(text), AsPiece(text)}).ok());
  EXPECT_EQ(*fs.ReadFile(scratch.path() + "/a/f", 100), "hellohello");
  EXPECT_EQ(fs.ReadFile(scratch.path() + "/a/f", 9).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(fs.WriteNewFile(scratch.path() + "/a/f", {AsPiece(text)}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*fs.ReadFile(scratch.path() + "/a/f", 100), "hellohello") << "a refused write must not touch the file";
  EXPECT_EQ(*fs.List(scratch.path() + "/a"), (std::vector<std::string>{"b", "f"}));
  ASSERT_TRUE(fs.ReplaceLink("b", scratch.path() + "/a/link").ok());
  ASSERT_TRUE(fs.ReplaceLink("f", scratch.path() + "/a/link").ok());
  EXPECT_EQ(*fs.ReadLink(scratch.path() + "/a/link"), "f");
  EXPECT_EQ(fs.ReadFile(scratch.path() + "/none", 9).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(fs.RemoveTree(scratch.path() + "/a").ok());
  EXPECT_FALSE(fs.Exists(scratch.path() + "/a"));
}

TEST(PosixFileSystemTest, AConfigurationIsItsOwnersAlone) {
  const ScratchDirectory scratch;
  FileSystem& fs = FileSystem::Posix();
  const mode_t before = umask(0);
  EXPECT_TRUE(fs.WriteNewFile(scratch.path() + "/config.yaml", {AsPiece("a")}).ok());
  EXPECT_TRUE(ReplaceFile(fs, scratch.path() + "/summary.json", "b").ok());
  // As an earlier release left it.
  EXPECT_EQ(chmod((scratch.path() + "/config.yaml").c_str(), 0644), 0);
  EXPECT_TRUE(ReplaceFile(fs, scratch.path() + "/config.yaml", "c").ok());
  umask(before);
  const auto mode = [&](const std::string& name) {
    struct stat info = {};
    EXPECT_EQ(stat((scratch.path() + "/" + name).c_str(), &info), 0);
    return info.st_mode & 0777;
  };
  EXPECT_EQ(mode("config.yaml"), 0600u);
  EXPECT_EQ(mode("summary.json"), 0644u);
}

TEST(PosixFileSystemTest, ReadsRegularFilesAndWaitsForNoOther) {
  const ScratchDirectory scratch;
  FileSystem& fs = FileSystem::Posix();
  const std::string text = "text";
  ASSERT_TRUE(fs.WriteNewFile(scratch.path() + "/file", {AsPiece(text)}).ok());
  ASSERT_EQ(::mkfifo((scratch.path() + "/fifo").c_str(), 0600), 0);
  ASSERT_TRUE(fs.MakeDirectories(scratch.path() + "/folder").ok());
  ASSERT_EQ(::symlink("file", (scratch.path() + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("/dev/zero", (scratch.path() + "/zero").c_str()), 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", scratch.path().c_str());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  for (const char* name : {"fifo", "folder", "link", "zero", "socket"}) {
    const std::string path = scratch.path() + "/" + name;
    for (const absl::Status& status : {fs.ReadFile(path, 100).status(), fs.Open(path).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
      EXPECT_NE(std::string(status.message()).find(std::string("/") + name + " is a link, a folder or a device"),
                std::string::npos)
          << status;
    }
  }
  ::close(socket);
  EXPECT_EQ(fs.ReadFile("/dev/zero", 100).status().code(), absl::StatusCode::kNotFound);
}

TEST(ReplaceFileTest, ReadersSeeOldOrNew) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path() + "/f";
  ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), path, "old").ok());
  FaultyFileSystem counting(1000, false);
  ASSERT_TRUE(ReplaceFile(counting, path, "old").ok());
  for (int op = 0; op < counting.operations(); ++op) {
    FaultyFileSystem faulty(op, /*crash=*/true);
    EXPECT_FALSE(ReplaceFile(faulty, path, "new").ok());
    const std::string text = *FileSystem::Posix().ReadFile(path, 100);
    EXPECT_TRUE(text == "old" || text == "new") << text;
  }
  ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), path, "newer").ok());
  EXPECT_EQ(*FileSystem::Posix().ReadFile(path, 100), "newer");
}

}  // namespace
}  // namespace troupe::storage
