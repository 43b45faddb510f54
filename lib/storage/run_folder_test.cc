#include "lib/storage/run_folder.h"

#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "lib/base/exit_code.h"
#include "lib/policy/testing.h"
#include "lib/storage/run_lock.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolder::Options Options(bool resume) const {
    RunFolder::Options options;
    options.directory = scratch_.path() + "/run";
    options.resume = resume;
    options.checkpoint = {42, "seed: 1\n", false};
    options.specs = {spec_};
    return options;
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    const auto entries = ListCheckpoints(FileSystem::Posix(), scratch_.path() + "/run");
    for (const CheckpointEntry& entry : *entries) {
      steps.push_back(entry.env_steps);
    }
    return steps;
  }
  const ScratchDirectory scratch_;
  const policy::PolicySpec spec_ = policy::SmallSpecForTesting();
};

TEST_F(RunFolderTest, KeepsTheNewestAndTheBest) {
  auto folder = RunFolder::Open(Options(false));
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const int64_t steps : {100, 200, 300, 400, 500}) {
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, steps), /*is_best=*/steps == 100).ok());
  }
  EXPECT_EQ(Steps(), (std::vector<int64_t>{100, 300, 400, 500}));
  const std::string run = (*folder)->directory();
  EXPECT_EQ(*FindCheckpoint(FileSystem::Posix(), run, "best"), run + "/checkpoints/100");
  EXPECT_EQ(*FindCheckpoint(FileSystem::Posix(), run, "latest"), run + "/checkpoints/500");
  EXPECT_EQ(*FindCheckpoint(FileSystem::Posix(), run, "300"), run + "/checkpoints/300");
  const auto missing = FindCheckpoint(FileSystem::Posix(), run, "200");
  EXPECT_NE(missing.status().message().find("100, 300, 400, 500"), absl::string_view::npos) << missing.status();
}

TEST_F(RunFolderTest, AnOlderStateThatIsTheBestLeavesTheLatest) {
  auto folder = RunFolder::Open(Options(false));
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const int64_t steps : {300, 200}) {
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, steps), /*is_best=*/steps == 200).ok());
  }
  const std::string run = (*folder)->directory();
  EXPECT_EQ(*FindCheckpoint(FileSystem::Posix(), run, "best"), run + "/checkpoints/200");
  EXPECT_EQ(*FindCheckpoint(FileSystem::Posix(), run, "latest"), run + "/checkpoints/300");
}

TEST_F(RunFolderTest, APruneLeavesTheNewestAndTheBest) {
  RunFolder::Options options = Options(false);
  options.keep = 10;
  auto folder = RunFolder::Open(options);
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const int64_t steps : {100, 200, 300, 400, 500}) {
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, steps), /*is_best=*/steps == 200).ok());
  }
  EXPECT_EQ(*(*folder)->Prune(3), 1);
  EXPECT_EQ(Steps(), (std::vector<int64_t>{200, 300, 400, 500}));
  EXPECT_EQ(*(*folder)->Prune(1), 2);
  EXPECT_EQ(*(*folder)->Prune(1), 0);
  EXPECT_EQ(Steps(), (std::vector<int64_t>{200, 500}));
  EXPECT_TRUE((*folder)->Save(StateForTesting(spec_, 600), /*is_best=*/false).ok()) << "the run goes on";
  EXPECT_EQ(Steps(), (std::vector<int64_t>{200, 500, 600}));
  // As a crash leaves one that was about to be replaced.
  FileSystem& fs = FileSystem::Posix();
  const std::string run = (*folder)->directory();
  ASSERT_TRUE(fs.Rename(run + "/checkpoints/500", run + "/checkpoints/.replaced-500").ok());
  EXPECT_EQ(*PruneCheckpoints(fs, run, 1), 0);
  EXPECT_EQ(Steps(), (std::vector<int64_t>{200, 500, 600}));
}

TEST_F(RunFolderTest, ACheckpointGoesToAPathOutsideOfRuns) {
  FileSystem& fs = FileSystem::Posix();
  auto folder = RunFolder::Open(Options(false));
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), /*is_best=*/true).ok());
  const std::string out = scratch_.path() + "/out";
  ASSERT_TRUE((*folder)->SaveTo(StateForTesting(spec_, 200), out).ok());
  EXPECT_EQ(VerifyCheckpoint(fs, out)->state.env_steps, 200);
  ASSERT_TRUE((*folder)->SaveTo(StateForTesting(spec_, 300), out).ok()) << "a checkpoint may be replaced";
  EXPECT_EQ(VerifyCheckpoint(fs, out)->state.env_steps, 300);
  EXPECT_EQ(*fs.List(scratch_.path()), (std::vector<std::string>{"out", "run"})) << "nothing is left beside it";
  EXPECT_EQ(Steps(), (std::vector<int64_t>{100})) << "the run's own are as they were";
  EXPECT_EQ(*FindCheckpoint(fs, (*folder)->directory(), "best"), (*folder)->directory() + "/checkpoints/100");
}

TEST_F(RunFolderTest, APathThatIsNoPlaceForACheckpointStaysAsItIs) {
  FileSystem& fs = FileSystem::Posix();
  auto folder = RunFolder::Open(Options(false));
  ASSERT_TRUE(folder.ok()) << folder.status();
  RunFolder::Options other_options = Options(false);
  other_options.directory = scratch_.path() + "/other";
  auto other = RunFolder::Open(other_options);
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE((*other)->Save(StateForTesting(spec_, 100), /*is_best=*/true).ok());
  const std::string mine = scratch_.path() + "/mine", file = scratch_.path() + "/file",
                    link = scratch_.path() + "/link";
  ASSERT_TRUE(fs.MakeDirectories(mine).ok());
  ASSERT_TRUE(ReplaceFile(fs, mine + "/thesis.txt", "mine").ok());
  ASSERT_TRUE(ReplaceFile(fs, file, "mine").ok());
  ASSERT_TRUE(fs.ReplaceLink("nowhere", link).ok());
  const auto code = [&](const std::string& path) {
    return (*folder)->SaveTo(StateForTesting(spec_, 200), path).code();
  };
  for (const std::string& there : {mine, file, link}) EXPECT_EQ(code(there), absl::StatusCode::kAlreadyExists) << there;
  const std::string run = (*folder)->directory();
  for (const std::string& bad :
       {std::string("relative"), std::string("/"), scratch_.path() + "/..", run + "/x", run + "/checkpoints/200",
        scratch_.path() + "/other/checkpoints/100", scratch_.path() + "/other/checkpoints/best"}) {
    EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(code(scratch_.path() + "/no/folder"), absl::StatusCode::kNotFound);
  EXPECT_EQ(*fs.ReadFile(mine + "/thesis.txt", 100), "mine");
  EXPECT_EQ(*fs.ReadFile(file, 100), "mine");
  EXPECT_TRUE(VerifyCheckpoint(fs, scratch_.path() + "/other/checkpoints/100").ok());
  EXPECT_EQ(*fs.List(scratch_.path()), (std::vector<std::string>{"file", "link", "mine", "other", "run"}));
}

// A learner prunes while a server starts.
TEST_F(RunFolderTest, ACheckpointThatGoesWhileItIsReadIsLookedForAgain) {
  FileSystem& fs = FileSystem::Posix();
  auto folder = RunFolder::Open(Options(false));
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), /*is_best=*/false).ok());
  const std::string run = (*folder)->directory();
  int looks = 0;
  const auto read = [&](const std::string& path) -> absl::StatusOr<int64_t> {
    if (++looks == 1) {
      EXPECT_TRUE((*folder)->Save(StateForTesting(spec_, 200), /*is_best=*/false).ok());
      EXPECT_EQ(*(*folder)->Prune(1), 1);
    }
    const auto manifest = ReadManifest(fs, path);
    if (!manifest.ok()) return manifest.status();
    return manifest->state.env_steps;
  };
  const absl::StatusOr<int64_t> found = ReadNamedCheckpoint(fs, run, "latest", read);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, 200);
  EXPECT_EQ(looks, 2);
  // What is damaged is said at once, and what always goes is not looked for endlessly.
  looks = 0;
  const auto fails = [&](const std::string&) -> absl::StatusOr<int64_t> {
    ++looks;
    return absl::DataLossError("torn");
  };
  EXPECT_EQ(ReadNamedCheckpoint(fs, run, "latest", fails).status().message(), "torn");
  EXPECT_EQ(looks, 1);
}

TEST_F(RunFolderTest, WhetherALearnerHasTheRunIsAskedOfTheKernel) {
  const std::string run = scratch_.path() + "/run";
  EXPECT_FALSE(RunLock::IsHeld(run)) << "there is none";
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_TRUE(RunLock::IsHeld(run));
  }
  EXPECT_FALSE(RunLock::IsHeld(run));
}

TEST_F(RunFolderTest, WhereNothingIsTheBestAnyMoreThereIsNoBest) {
  auto folder = RunFolder::Open(Options(false));
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const int64_t steps : {100, 200, 300, 400}) {
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, steps), /*is_best=*/steps == 100).ok());
  }
  learner::LearnerState state = StateForTesting(spec_, 500);
  state.best_by = "";
  ASSERT_TRUE((*folder)->Save(state, /*is_best=*/false).ok());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{300, 400, 500})) << "what was the best goes as others do";
  const auto best = FindCheckpoint(FileSystem::Posix(), (*folder)->directory(), "best");
  EXPECT_EQ(best.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RunFolderTest, StartResumeAndLockRules) {
  EXPECT_EQ(RunFolder::Open(Options(true)).status().code(), absl::StatusCode::kNotFound);
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    EXPECT_EQ((*folder)->learner_epoch(), 1u);
    const absl::Status second = RunFolder::Open(Options(true)).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition) << "two learners on one run";
    EXPECT_EQ(base::ExitCodeOf(second), base::ExitCode::kFailed) << "the other one may end";
  }
  EXPECT_EQ(RunFolder::Open(Options(false)).status().code(), absl::StatusCode::kAlreadyExists);
  auto resumed = RunFolder::Open(Options(true));
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ((*resumed)->learner_epoch(), 2u);
}

TEST_F(RunFolderTest, OnlyANewRunWithoutACheckpointIsDiscarded) {
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE((*folder)->DiscardIfNew().ok());
    EXPECT_FALSE(FileSystem::Posix().Exists((*folder)->directory()));
  }
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok()) << folder.status();
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
    ASSERT_TRUE((*folder)->DiscardIfNew().ok());
  }
  auto resumed = RunFolder::Open(Options(true));
  ASSERT_TRUE(resumed.ok());
  ASSERT_TRUE((*resumed)->DiscardIfNew().ok());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{100}));
}

TEST_F(RunFolderTest, ASupersededLearnerCannotCommit) {
  auto folder = RunFolder::Open(Options(false));
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
  // The lock can be lost on network file systems; the epoch on disk decides.
  ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), (*folder)->Path("learner_epoch"), "2\n").ok());
  EXPECT_EQ((*folder)->Save(StateForTesting(spec_, 200), false).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Steps(), (std::vector<int64_t>{100}));
}

/// Another learner takes the run over while a checkpoint is written.
class TakenOverFileSystem final : public FaultyFileSystem {
 public:
  TakenOverFileSystem() : FaultyFileSystem(1 << 30, false) {}
  absl::Status WriteNewFile(const std::string& path, absl::Span<const absl::Span<const std::byte>> pieces) override {
    if (!epoch_file.empty() && absl::StrContains(path, "checkpoints/")) {
      EXPECT_TRUE(ReplaceFile(FileSystem::Posix(), std::exchange(epoch_file, ""), "2\n").ok());
    }
    return FaultyFileSystem::WriteNewFile(path, pieces);
  }
  std::string epoch_file;  ///< rewritten in the first write of a checkpoint's files
};

TEST_F(RunFolderTest, ALearnerThatIsSupersededWhileItWritesDoesNotCommit) {
  TakenOverFileSystem fs;
  auto folder = RunFolder::Open(Options(false), fs);
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
  fs.epoch_file = (*folder)->Path("learner_epoch");
  EXPECT_EQ((*folder)->Save(StateForTesting(spec_, 200), false).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Steps(), (std::vector<int64_t>{100}));
}

TEST_F(RunFolderTest, ADeletedRunFolderIsSaidToBeGoneAndNotMadeAnew) {
  auto folder = RunFolder::Open(Options(false));
  ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
  std::filesystem::remove_all((*folder)->directory());
  const absl::Status saved = (*folder)->Save(StateForTesting(spec_, 200), false);
  EXPECT_EQ(saved.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(saved.message(), "the run folder is gone");
  EXPECT_FALSE(std::filesystem::exists((*folder)->directory()));
}

TEST_F(RunFolderTest, DamagedCheckpointsAreSetAsideAndTheOneBeforeIsUsed) {
  auto folder = RunFolder::Open(Options(false));
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
  ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 200), false).ok());
  std::ofstream((*folder)->Path("checkpoints/200/policies.safetensors"), std::ios::app) << "x";
  std::vector<std::string> quarantined;
  const auto state = (*folder)->LoadLatest(&quarantined);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->env_steps, 100);
  ASSERT_EQ(quarantined.size(), 1u);
  EXPECT_TRUE(FileSystem::Posix().Exists((*folder)->Path("checkpoints/200.corrupt")));
}

/// Every file is somebody else's.
class UnreadableFileSystem final : public FaultyFileSystem {
 public:
  UnreadableFileSystem() : FaultyFileSystem(1 << 30, false) {}
  absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) override {
    if (!absl::StrContains(path, "checkpoints/")) return FaultyFileSystem::ReadFile(path, max_bytes);
    return absl::PermissionDeniedError("not yours");
  }
  absl::StatusOr<std::unique_ptr<OpenFile>> Open(const std::string& /*path*/) override {
    return absl::PermissionDeniedError("not yours");
  }
};

TEST_F(RunFolderTest, AnUnreadableCheckpointIsNotTakenForADamagedOne) {
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
  }
  UnreadableFileSystem unreadable;
  std::vector<std::string> quarantined;
  {
    auto folder = RunFolder::Open(Options(true), unreadable);
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_EQ((*folder)->LoadLatest(&quarantined).status().code(), absl::StatusCode::kPermissionDenied);
  }
  auto folder = RunFolder::Open(Options(true));
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ((*folder)->LoadLatest(&quarantined)->env_steps, 100);
  EXPECT_TRUE(quarantined.empty());
}

// The second resume began at 0 env steps, silently: the first had set the damaged checkpoint aside.
TEST_F(RunFolderTest, ARunWhoseCheckpointsAreAllDamagedIsRefusedEachTime) {
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
    std::ofstream((*folder)->Path("checkpoints/100/policies.safetensors"), std::ios::app) << "x";
    std::ofstream((*folder)->Path("checkpoints/.unfinished-200")) << "torn";
  }
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto folder = RunFolder::Open(Options(true));
    ASSERT_TRUE(folder.ok());
    std::vector<std::string> quarantined;
    const absl::Status refused = (*folder)->LoadLatest(&quarantined).status();
    EXPECT_EQ(base::ExitCodeOf(refused), base::ExitCode::kRefused) << refused;
    for (const char* words : {"100.corrupt", ".unfinished-200", "--start-over", "does not begin at 0"}) {
      EXPECT_NE(refused.message().find(words), absl::string_view::npos) << refused;
    }
    EXPECT_EQ(refused.message().find('\n'), absl::string_view::npos);
    EXPECT_TRUE(FileSystem::Posix().Exists((*folder)->Path("checkpoints/100.corrupt")));
    EXPECT_TRUE(FileSystem::Posix().Exists((*folder)->Path("checkpoints/.unfinished-200")));
    ASSERT_TRUE((*folder)->DiscardIfNew().ok());
  }
}

TEST_F(RunFolderTest, ARunWhoseCheckpointsAreGoneIsRefused) {
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
    ASSERT_TRUE(FileSystem::Posix().RemoveTree((*folder)->Path("checkpoints/100")).ok());
  }
  std::vector<std::string> quarantined;
  auto folder = RunFolder::Open(Options(true));
  ASSERT_TRUE(folder.ok());
  const absl::Status refused = (*folder)->LoadLatest(&quarantined).status();
  EXPECT_EQ(base::ExitCodeOf(refused), base::ExitCode::kRefused) << refused;
}

// Versions before the note of it left only the checkpoints to tell.
TEST_F(RunFolderTest, ADamagedCheckpointOfAnOlderVersionRefuses) {
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE(FileSystem::Posix().MakeDirectories((*folder)->Path("checkpoints/100.corrupt-2")).ok());
  }
  std::vector<std::string> quarantined;
  auto folder = RunFolder::Open(Options(true));
  ASSERT_TRUE(folder.ok());
  const absl::Status refused = (*folder)->LoadLatest(&quarantined).status();
  EXPECT_EQ(base::ExitCodeOf(refused), base::ExitCode::kRefused) << refused;
}

TEST_F(RunFolderTest, ARunWithoutACheckpointBegins) {
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    std::ofstream((*folder)->Path("checkpoints/.unfinished-200")) << "torn";
  }
  std::vector<std::string> quarantined;
  auto folder = RunFolder::Open(Options(true));
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ((*folder)->LoadLatest(&quarantined).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(FileSystem::Posix().Exists((*folder)->Path("checkpoints/.unfinished-200")));
}

// Killed after the note of its first checkpoint and before the checkpoint is in place: it has nothing else.
TEST_F(RunFolderTest, AWholeUnfinishedCheckpointIsUsedWhereThereIsNoOther) {
  const std::string run = scratch_.path() + "/run";
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
    ASSERT_TRUE(FileSystem::Posix().Rename(run + "/checkpoints/100", run + "/checkpoints/.unfinished-100").ok());
  }
  std::vector<std::string> quarantined;
  auto folder = RunFolder::Open(Options(true));
  ASSERT_TRUE(folder.ok());
  const auto state = (*folder)->LoadLatest(&quarantined);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->env_steps, 100);
  EXPECT_EQ(*FindCheckpoint(FileSystem::Posix(), run, "latest"), run + "/checkpoints/100");
}

// Between the two renames of a Save readers find the older one, and the next learner puts it back.
TEST_F(RunFolderTest, AReplacedCheckpointIsFoundUntilTheNewerOneIsThere) {
  const std::string run = scratch_.path() + "/run";
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), true).ok());
    ASSERT_TRUE(FileSystem::Posix().Rename(run + "/checkpoints/100", run + "/checkpoints/.replaced-100").ok());
  }
  for (const char* which : {"latest", "best", "100"}) {
    EXPECT_EQ(*FindCheckpoint(FileSystem::Posix(), run, which), run + "/checkpoints/.replaced-100");
  }
  auto folder = RunFolder::Open(Options(true));
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(*FindCheckpoint(FileSystem::Posix(), run, "best"), run + "/checkpoints/100");
  std::vector<std::string> quarantined;
  EXPECT_EQ((*folder)->LoadLatest(&quarantined)->env_steps, 100);
}

TEST_F(RunFolderTest, AForeignCheckpointStopsTheResume) {
  {
    auto folder = RunFolder::Open(Options(false));
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), false).ok());
  }
  RunFolder::Options options = Options(true);
  options.checkpoint.spec_hash = 43;
  auto folder = RunFolder::Open(options);
  ASSERT_TRUE(folder.ok());
  std::vector<std::string> quarantined;
  const absl::Status foreign = (*folder)->LoadLatest(&quarantined).status();
  EXPECT_EQ(foreign.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(base::ExitCodeOf(foreign), base::ExitCode::kRefused);
  EXPECT_TRUE(quarantined.empty());
}

TEST_F(RunFolderTest, UnwritableFolderIsAnErrorInWords) {
  RunFolder::Options options = Options(false);
  std::ofstream(scratch_.path() + "/file") << "x";
  options.directory = scratch_.path() + "/file/run";
  const auto folder = RunFolder::Open(options);
  EXPECT_FALSE(folder.ok());
  EXPECT_NE(folder.status().message().find("make directory"), absl::string_view::npos) << folder.status();
}

// Whatever operation of a Save fails, or is the last before the process dies: a whole checkpoint is there, the old or
// the new.
class SaveFaultTest : public RunFolderTest, public ::testing::WithParamInterface<bool> {};

TEST_P(SaveFaultTest, OldOrNewNeverOther) {
  const bool crash = GetParam();
  int operations = 0;
  {
    FaultyFileSystem counting(1 << 30, crash);
    auto folder = RunFolder::Open(Options(false), counting);
    ASSERT_TRUE(folder.ok());
    const int before = counting.operations();
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, 100), true).ok());
    operations = counting.operations() - before;
  }
  ASSERT_GT(operations, 8);
  for (int op = 0; op < operations + 4; ++op) {
    {
      auto folder = RunFolder::Open(Options(true));
      ASSERT_TRUE(folder.ok()) << folder.status();
    }
    FaultyFileSystem counting(1 << 30, crash);
    int open_operations = 0;
    {
      auto folder = RunFolder::Open(Options(true), counting);
      ASSERT_TRUE(folder.ok());
      open_operations = counting.operations();
    }
    FaultyFileSystem faulty(open_operations + op, crash);
    const int64_t steps = 200 + op;
    {
      auto folder = RunFolder::Open(Options(true), faulty);
      ASSERT_TRUE(folder.ok()) << folder.status();
      (*folder)->Save(StateForTesting(spec_, steps), true).IgnoreError();
    }
    auto folder = RunFolder::Open(Options(true));
    ASSERT_TRUE(folder.ok());
    std::vector<std::string> quarantined;
    const auto state = (*folder)->LoadLatest(&quarantined);
    ASSERT_TRUE(state.ok()) << "operation " << op << ": " << state.status();
    EXPECT_TRUE(quarantined.empty()) << "operation " << op << " left a damaged checkpoint: " << quarantined[0];
    EXPECT_GE(state->env_steps, 100);
    EXPECT_LE(state->env_steps, steps);
    // And the run goes on.
    ASSERT_TRUE((*folder)->Save(StateForTesting(spec_, steps), true).ok());
    EXPECT_EQ((*folder)->LoadLatest(&quarantined)->env_steps, steps);
  }
}

INSTANTIATE_TEST_SUITE_P(FailOnceOrCrash, SaveFaultTest, ::testing::Bool());

}  // namespace
}  // namespace troupe::storage
