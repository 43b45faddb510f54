// A process that saves a checkpoint is killed before each of its calls that change the disk, with real files and real
// fsync; the next process finds the state before or the one after. What a power failure leaves is
// lib/storage/run_folder_crash_test.cc.

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/check.h"
#include "lib/policy/testing.h"
#include "lib/storage/disk_calls.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::fault {
namespace {

using storage::FileSystem;
using storage::RunFolder;

/// The machine's files; its process gets SIGKILL before call number `kill_before` (from 0).
class DeadlyDisk final : public storage::DiskCalls {
 public:
  explicit DeadlyDisk(int kill_before) : kill_before_(kill_before) {}

  int Create(const std::string& path, mode_t mode) override { return Live().Create(path, mode); }
  ssize_t Write(int fd, const void* data, size_t bytes) override { return Live().Write(fd, data, bytes); }
  int Sync(int fd, const std::string& path) override { return Live().Sync(fd, path); }
  int Rename(const std::string& from, const std::string& to) override { return Live().Rename(from, to); }
  int Link(const std::string& target, const std::string& link) override { return Live().Link(target, link); }
  int Unlink(const std::string& path) override { return Live().Unlink(path); }
  int MakeDirectory(const std::string& path) override { return Live().MakeDirectory(path); }
  int RemoveDirectory(const std::string& path) override { return Live().RemoveDirectory(path); }

 private:
  DiskCalls& Live() {
    if (calls_++ == kill_before_) kill(getpid(), SIGKILL);
    return real_;
  }
  const int kill_before_;
  int calls_ = 0;
  DiskCalls real_;
};

class CheckpointKillTest : public ::testing::Test {
 protected:
  /// The run in `root`, opened by this process.
  std::unique_ptr<RunFolder> Open(const std::string& root, FileSystem& fs) const {
    RunFolder::Options options;
    options.directory = root + "/runs/run";
    options.resume = fs.Exists(options.directory + "/config.yaml");
    options.keep = 2;
    options.checkpoint = {42, "seed: 1\n", false};
    options.specs = {spec_};
    auto folder = RunFolder::Open(options, fs);
    TROUPE_CHECK(folder.ok());
    return *std::move(folder);
  }
  absl::Status Save(RunFolder& folder, int64_t env_steps, int64_t iteration) const {
    learner::LearnerState state = storage::StateForTesting(spec_, env_steps);
    state.iteration = iteration;
    return folder.Save(state, /*is_best=*/false);
  }
  static absl::StatusOr<learner::LearnerState> Load(RunFolder& folder) {
    std::vector<std::string> quarantined;
    absl::StatusOr<learner::LearnerState> state = folder.LoadLatest(&quarantined);
    EXPECT_TRUE(quarantined.empty());
    return state;
  }

  /// Saves at `saved` env steps, iteration by iteration; then a process of its own resumes and saves at `env_steps`,
  /// killed before each of its calls in turn. `fewest_kills`: the test is void with fewer.
  void KillAtEachCall(const std::vector<int64_t>& saved, int64_t env_steps, int fewest_kills) const {
    const auto before = static_cast<int64_t>(saved.size());
    int kills = 0;
    for (bool killed = true; killed; kills += killed) {
      SCOPED_TRACE(kills);
      const storage::ScratchDirectory scratch;
      for (int64_t i = 0; i < before; ++i) {
        const auto folder = Open(scratch.path(), FileSystem::Posix());
        ASSERT_TRUE(Save(*folder, saved[static_cast<size_t>(i)], i + 1).ok());
      }
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        DeadlyDisk disk(kills);
        const std::unique_ptr<FileSystem> fs = FileSystem::Posix(&disk);
        const auto folder = Open(scratch.path(), *fs);
        std::vector<std::string> quarantined;
        folder->LoadLatest(&quarantined).IgnoreError();
        _exit(Save(*folder, env_steps, before + 1).ok() ? 0 : 1);
      }
      int status = 0;
      while (waitpid(child, &status, 0) < 0) ASSERT_EQ(errno, EINTR);
      killed = WIFSIGNALED(status);
      ASSERT_TRUE(killed ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0) << status;

      const auto folder = Open(scratch.path(), FileSystem::Posix());
      const auto state = Load(*folder);
      if (before == 0 && absl::IsNotFound(state.status())) continue;
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_GE(state->iteration, killed ? std::max<int64_t>(before, 1) : before + 1);
      EXPECT_LE(state->iteration, before + 1);
      ASSERT_TRUE(Save(*folder, env_steps, before + 2).ok());
      EXPECT_EQ(Load(*folder)->iteration, before + 2);
    }
    EXPECT_GE(kills, fewest_kills);
    std::printf("%d kills\n", kills);
  }

  const policy::PolicySpec spec_ = policy::SmallSpecForTesting();
};

TEST_F(CheckpointKillTest, TheFirstSave) { KillAtEachCall({}, 100, 40); }

TEST_F(CheckpointKillTest, TheSameStepOfTheOnlyOne) { KillAtEachCall({100}, 100, 40); }

TEST_F(CheckpointKillTest, ANewStepAndAPrune) { KillAtEachCall({100, 200}, 300, 40); }

}  // namespace
}  // namespace troupe::fault
