#include "lib/storage/start_over.h"

#include <fstream>

#include "lib/base/exit_code.h"
#include "lib/policy/testing.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

class MoveRunAsideTest : public ::testing::Test {
 protected:
  std::unique_ptr<RunFolder> Open(const std::string& started_over = "") const {
    RunFolder::Options options;
    options.directory = run_;
    options.checkpoint = {42, "seed: 1\n", false};
    options.specs = {policy::SmallSpecForTesting()};
    options.started_over = started_over;
    auto folder = RunFolder::Open(options);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return folder.ok() ? *std::move(folder) : nullptr;
  }
  absl::StatusOr<std::string> Move() const { return MoveRunAside(FileSystem::Posix(), run_); }
  static bool Exists(const std::string& path) { return FileSystem::Posix().Exists(path); }

  const ScratchDirectory scratch_;
  const std::string run_ = scratch_.path() + "/run";
};

TEST_F(MoveRunAsideTest, TheFirstFreeNumber) {
  ASSERT_TRUE(FileSystem::Posix().MakeDirectories(run_ + ".before-1").ok());
  std::ofstream(run_ + ".before-2") << "x";
  {
    const auto folder = Open();
    ASSERT_TRUE(folder->Save(StateForTesting(policy::SmallSpecForTesting(), 100), true).ok());
  }
  EXPECT_EQ(*Move(), run_ + ".before-3");
  EXPECT_FALSE(Exists(run_));
  EXPECT_TRUE(VerifyCheckpoint(FileSystem::Posix(), run_ + ".before-3/checkpoints/100").ok());
  EXPECT_TRUE(Exists(run_ + ".before-3/checkpoints/latest"));
}

// The command stands in a file that a restart policy runs again and again.
TEST_F(MoveRunAsideTest, WorksOnce) {
  Open();
  const std::string moved_to = *Move();
  EXPECT_EQ(*Move(), moved_to) << "it died before it began in the old one's place";
  EXPECT_FALSE(Exists(run_ + ".before-2"));
  Open(moved_to);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::Status refused = Move().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << refused;
    EXPECT_EQ(base::ExitCodeOf(refused), base::ExitCode::kRefused);
  }
  EXPECT_TRUE(Exists(run_ + "/config.yaml"));
  EXPECT_FALSE(Exists(run_ + ".before-2"));
}

TEST_F(MoveRunAsideTest, ALivingLearnersRunStays) {
  const auto folder = Open();
  const absl::Status busy = Move().status();
  EXPECT_EQ(busy.code(), absl::StatusCode::kFailedPrecondition) << busy;
  EXPECT_EQ(base::ExitCodeOf(busy), base::ExitCode::kFailed) << "the learner may end";
  EXPECT_TRUE(Exists(run_ + "/config.yaml"));
}

TEST_F(MoveRunAsideTest, NoRun) {
  const absl::Status missing = Move().status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(base::ExitCodeOf(missing), base::ExitCode::kRefused);
}

}  // namespace
}  // namespace troupe::storage
