#include "lib/storage/testing/crash_disk.h"

#include <set>

#include "lib/storage/file_system.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

using Crash = CrashDisk::Crash;
using Keeps = CrashDisk::Keeps;

/// "name=text" of every file in the folder, sorted.
std::vector<std::string> Files(const std::string& folder) {
  std::vector<std::string> files;
  const std::vector<std::string> names = *FileSystem::Posix().List(folder);
  for (const std::string& name : names) {
    const auto text = FileSystem::Posix().ReadFile(folder + "/" + name, 100);
    files.push_back(text.ok() ? name + "=" + *text : name);
  }
  return files;
}

class CrashDiskTest : public ::testing::Test {
 protected:
  std::vector<std::string> After(const Crash& crash, int calls = -1) const {
    const ScratchDirectory to;
    disk_.Materialize(calls < 0 ? disk_.calls() : calls, crash, to.path());
    return Files(to.path());
  }
  std::string Path(const std::string& name) const { return scratch_.path() + "/" + name; }

  const ScratchDirectory scratch_;
  CrashDisk disk_{scratch_.path()};
  const std::unique_ptr<FileSystem> fs_ = FileSystem::Posix(&disk_);
};

using Names = std::vector<std::string>;

TEST_F(CrashDiskTest, WhatIsNotSyncedIsLost) {
  const std::string text = "hello";
  ASSERT_TRUE(fs_->WriteNewFile(Path("a"), {AsPiece(text)}).ok());
  EXPECT_EQ(After({}), Names{"a=hello"});
  EXPECT_EQ(After({Keeps::kNothing, Keeps::kAll, 0}), Names{}) << "the file is synced, its name is not";
  ASSERT_TRUE(fs_->SyncDirectory(scratch_.path()).ok());
  EXPECT_EQ(After({Keeps::kNothing, Keeps::kNothing, 0}), Names{"a=hello"});
  ASSERT_TRUE(fs_->Rename(Path("a"), Path("b")).ok());
  EXPECT_EQ(After({Keeps::kNothing, Keeps::kNothing, 0}), Names{"a=hello"});
  EXPECT_EQ(After({Keeps::kAll, Keeps::kNothing, 0}), Names{"b=hello"});
  ASSERT_TRUE(fs_->RemoveTree(Path("b")).ok());
  EXPECT_EQ(After({Keeps::kNothing, Keeps::kNothing, 0}), Names{"a=hello"});
  EXPECT_EQ(After({}), Names{});
}

TEST_F(CrashDiskTest, AFileWithoutFsyncMayBeEmptyTornOrZero) {
  const std::string text = "hello";
  const int fd = disk_.Create(Path("a"), 0644);
  ASSERT_EQ(disk_.Write(fd, text.data(), text.size()), 5);
  ASSERT_TRUE(fs_->SyncDirectory(scratch_.path()).ok());
  EXPECT_EQ(After({Keeps::kNothing, Keeps::kNothing, 0}), Names{"a="});
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) seen.insert(After({Keeps::kNothing, Keeps::kSome, seed}).at(0));
  EXPECT_EQ(seen.count("a="), 1u);
  EXPECT_EQ(seen.count("a=he"), 1u);
  EXPECT_EQ(seen.count(std::string("a=he\0\0\0", 7)), 1u);
  EXPECT_EQ(seen.count("a=hello"), 1u);
  ASSERT_EQ(disk_.Sync(fd, Path("a")), 0);
  EXPECT_EQ(After({Keeps::kNothing, Keeps::kNothing, 0}), Names{"a=hello"});
  ::close(fd);
}

TEST_F(CrashDiskTest, PendingChangesComeAndGoByThemselves) {
  for (const char* name : {"a", "b"}) ASSERT_TRUE(fs_->MakeDirectories(Path(name)).ok());
  ASSERT_TRUE(fs_->Rename(Path("a"), Path("c")).ok());
  std::set<std::vector<std::string>> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) seen.insert(After({Keeps::kSome, Keeps::kAll, seed}));
  EXPECT_EQ(seen, (std::set<std::vector<std::string>>{{}, {"a"}, {"b"}, {"a", "b"}, {"c"}, {"b", "c"}}));
}

TEST_F(CrashDiskTest, ADeadProcessChangesNothingMore) {
  disk_.StopAfter(2);
  const std::string text = "hello";
  EXPECT_FALSE(fs_->WriteNewFile(Path("a"), {AsPiece(text)}).ok());
  EXPECT_EQ(Files(scratch_.path()), Names{"a=hello"}) << "not even the clearing up after an error";
  EXPECT_EQ(disk_.calls(), 2);
  EXPECT_EQ(After({}, 1), Names{"a="});
  disk_.GoOn();
  EXPECT_TRUE(fs_->RemoveTree(Path("a")).ok());
  EXPECT_EQ(disk_.calls(), 3);
}

}  // namespace
}  // namespace troupe::storage
