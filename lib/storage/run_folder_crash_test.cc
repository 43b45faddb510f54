// Every crash point of everything that changes a run folder: the process dies, or the machine does, after each call to
// the operating system, and what was not synced is there, or gone, or partly there. Then, after a process that died
// there, another one recovers, and the machine dies after each call of that. Whatever is found afterwards is the state
// before or the one after, never neither.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/policy/testing.h"
#include "lib/storage/run_folder.h"
#include "lib/storage/start_over.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/crash_disk.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

using Crash = CrashDisk::Crash;
using Keeps = CrashDisk::Keeps;

constexpr int kKeep = 2;
// Random crashes at each point, of each of two kinds. Sanitizers look at the code, not at the states: one does for
// them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 1;
#else
constexpr uint64_t kSeeds = 5;
#endif

/// Thousands of folders are made and removed: in memory, where there is such a place.
std::filesystem::path FastFolder() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
}

RunFolder::Options OptionsFor(const std::string& root, const policy::PolicySpec& spec) {
  RunFolder::Options options;
  options.directory = root + "/runs/run";
  options.resume = FileSystem::Posix().Exists(options.directory + "/config.yaml");
  options.keep = kKeep;
  options.checkpoint = {42, "seed: 1\n", false};
  options.specs = {spec};
  return options;
}

/// A folder with a run, the process that trains it, and what that process has said: the n-th Save writes iteration n.
class World {
 public:
  explicit World(const policy::PolicySpec& spec) : spec_(spec) {}

  void KeepOne() { keep_ = 1; }
  void Open(const std::string& started_over = "") {
    RunFolder::Options options = OptionsFor(root_.path(), spec_);
    options.started_over = started_over;
    options.keep = keep_;
    auto opened = RunFolder::Open(options, *fs_);
    if (!opened.ok()) return;
    folder_ = *std::move(opened);
    epochs_[disk_.calls()] = folder_->learner_epoch();
  }
  void Load() {
    std::vector<std::string> quarantined;
    if (folder_ != nullptr) folder_->LoadLatest(&quarantined).IgnoreError();
  }
  void Save(int64_t env_steps, bool is_best = false) {
    ++saves_;
    SaveAgain(env_steps, is_best);
  }
  /// The state of the last Save once more.
  void SaveAgain(int64_t env_steps, bool is_best) {
    if (folder_ == nullptr) return;
    learner::LearnerState state = StateForTesting(spec_, env_steps);
    state.iteration = saves_;
    if (folder_->Save(state, is_best).ok()) reported_[disk_.calls()] = saves_;
  }
  void StartOver() {
    const auto moved_to = MoveRunAside(*fs_, root_.path() + "/runs/run");
    if (moved_to.ok()) Open(*moved_to);
  }
  void Die() { folder_ = nullptr; }
  /// The disk has lost a checkpoint's last byte, for good.
  void Damage(const std::string& checkpoint) {
    const std::string path = Path("checkpoints/" + checkpoint + "/policies.safetensors");
    const std::string text = *fs_->ReadFile(path, 1 << 20);
    const std::string less = text.substr(1);
    ASSERT_TRUE(fs_->RemoveTree(path).ok());
    ASSERT_TRUE(fs_->WriteNewFile(path, {AsPiece(less)}).ok());
    ASSERT_TRUE(fs_->SyncDirectory(Path("checkpoints/" + checkpoint)).ok());
  }

  std::string Path(const std::string& name) const { return root_.path() + "/runs/run/" + name; }
  const std::string& root() const { return root_.path(); }
  CrashDisk& disk() { return disk_; }
  const CrashDisk& disk() const { return disk_; }
  int64_t saves() const { return saves_; }
  /// The last Save that had returned, and the last epoch that was handed out, before call number `calls`; 0: none.
  int64_t ReportedBefore(int calls) const { return LastBefore(reported_, calls); }
  uint64_t EpochBefore(int calls) const { return LastBefore(epochs_, calls); }

 private:
  template <typename T>
  static T LastBefore(const std::map<int, T>& by_calls, int calls) {
    const auto after = by_calls.upper_bound(calls);
    return after == by_calls.begin() ? T{0} : std::prev(after)->second;
  }

  const policy::PolicySpec spec_;
  const ScratchDirectory root_{FastFolder()};
  CrashDisk disk_{root_.path()};
  const std::unique_ptr<FileSystem> fs_ = FileSystem::Posix(&disk_);
  std::unique_ptr<RunFolder> folder_;
  int keep_ = kKeep;
  int64_t saves_ = 0;
  std::map<int, int64_t> reported_;
  std::map<int, uint64_t> epochs_;
};

struct Scenario {
  std::string name;
  std::function<void(World&)> before;  ///< the process lives through this
  std::function<void(World&)> action;
  std::string damaged = "";  ///< the checkpoint that is
  bool none_usable = false;  ///< it is the only one
  bool starts_over = false;
};
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

/// Iterations of the checkpoints below `root` that are whole, under whatever name.
std::set<int64_t> WholeOnes(const std::string& root) {
  std::set<int64_t> whole;
  FileSystem& fs = FileSystem::Posix();
  for (const char* run : {"run", "run.before-1"}) {
    const std::string folder = absl::StrCat(root, "/runs/", run, "/checkpoints");
    const auto names = fs.List(folder);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      if (fs.ReadLink(folder + "/" + name).ok()) continue;
      const auto manifest = VerifyCheckpoint(fs, folder + "/" + name);
      if (manifest.ok()) whole.insert(manifest->state.iteration);
    }
  }
  return whole;
}

bool IsInPlace(const std::string& name) { return name[0] >= '0' && name[0] <= '9'; }

bool AnyStartsWith(const std::vector<std::string>& names, const std::string& prefix) {
  return std::any_of(names.begin(), names.end(),
                     [&prefix](const std::string& name) { return absl::StartsWith(name, prefix); });
}

class RunFolderCrashTest : public ::testing::TestWithParam<Scenario> {
 protected:
  bool damaged() const { return !GetParam().damaged.empty(); }

  /// Plays the scenario without a crash: which calls it makes, and what is whole before and after.
  void Rehearse() {
    World world(spec_);
    GetParam().before(world);
    begin_ = world.disk().calls();
    saves_before_ = world.saves();
    const std::set<int64_t> before = WholeOnes(world.root());
    GetParam().action(world);
    end_ = world.disk().calls();
    for (const int64_t save : WholeOnes(world.root())) {
      if (before.count(save) != 0) kept_.insert(save);
    }
  }

  /// What a crash left in `root`, before anybody recovers.
  void CheckFound(const std::string& root) const {
    FileSystem& fs = FileSystem::Posix();
    const std::string run = root + "/runs/run";
    const std::set<int64_t> whole = WholeOnes(root);
    for (const int64_t kept : kept_)
      EXPECT_EQ(whole.count(kept), 1u) << "the checkpoint of save " << kept << " is gone";
    const auto names = fs.List(run + "/checkpoints");
    if (!names.ok()) return;
    const bool any_in_place = std::any_of(names->begin(), names->end(), IsInPlace);
    EXPECT_TRUE(!any_in_place || fs.Exists(run + "/had_checkpoint")) << "a checkpoint was there before the note of it";
    if (damaged()) {
      // One that is not whole: the next checkpoint of that name may stand beside it.
      EXPECT_TRUE(std::any_of(names->begin(), names->end(), [&](const std::string& name) {
        return absl::StartsWith(name, GetParam().damaged) && !VerifyCheckpoint(fs, run + "/checkpoints/" + name).ok();
      })) << "a damaged checkpoint was deleted";
      return;
    }
    for (const std::string& name : *names) {
      if (IsInPlace(name)) {
        EXPECT_TRUE(VerifyCheckpoint(fs, run + "/checkpoints/" + name).ok()) << name << " is not whole";
      }
      if (name == "latest" || name == "best") {
        const auto found = FindCheckpoint(fs, run, name);
        ASSERT_TRUE(found.ok()) << found.status();
        EXPECT_TRUE(VerifyCheckpoint(fs, *found).ok()) << name << " leads to " << *found;
      }
    }
  }

  /// The next process after a crash that came after `calls` calls and left what is in `root`.
  void CheckRecovery(const World& world, int calls, const std::string& root) const {
    UnsyncedDisk disk;
    const std::unique_ptr<FileSystem> fs = FileSystem::Posix(&disk);
    int64_t reported = world.ReportedBefore(calls);
    // What was saved before lies in the run that was moved away.
    if (GetParam().starts_over && reported <= saves_before_) reported = 0;
    const RunFolder::Options options = OptionsFor(root, spec_);
    EXPECT_TRUE(options.resume || reported == 0) << "there is no run any more";
    auto folder = RunFolder::Open(options, *fs);
    ASSERT_TRUE(folder.ok()) << folder.status();
    if (!GetParam().starts_over) {
      EXPECT_GT((*folder)->learner_epoch(), world.EpochBefore(calls)) << "an epoch is given twice";
    }
    std::vector<std::string> quarantined;
    const auto state = (*folder)->LoadLatest(&quarantined);
    if (GetParam().none_usable) {
      EXPECT_EQ(state.status().code(), absl::StatusCode::kFailedPrecondition) << state.status();
      EXPECT_EQ(base::ExitCodeOf(state.status()), base::ExitCode::kRefused);
      return;
    }
    if (state.ok()) {
      EXPECT_GE(state->iteration, damaged() ? 1 : reported) << "older than what was reported durable";
      EXPECT_LE(state->iteration, world.saves());
    } else {
      EXPECT_EQ(state.status().code(), absl::StatusCode::kNotFound) << state.status();
      EXPECT_EQ(reported, 0) << state.status();
    }
    EXPECT_TRUE(quarantined.empty() || damaged()) << quarantined[0];
    // And the run goes on.
    learner::LearnerState next = StateForTesting(spec_, 9000);
    next.iteration = 1000;
    ASSERT_TRUE((*folder)->Save(next, true).ok());
    EXPECT_EQ((*folder)->LoadLatest(&quarantined)->iteration, 1000);
    EXPECT_FALSE(AnyStartsWith(*fs->List((*folder)->Path("checkpoints")), "."));
  }

  void CheckCrash(const World& world, int calls, const Crash& crash) {
    const ScratchDirectory left(FastFolder());
    world.disk().Materialize(calls, crash, left.path());
    CheckFound(left.path());
    CheckRecovery(world, calls, left.path());
    ++states_;
  }

  const policy::PolicySpec spec_ = policy::SmallSpecForTesting();
  int64_t saves_before_ = 0;  ///< saves before the scenario's action
  int begin_ = 0;             ///< calls before the scenario's action
  int end_ = 0;               ///< and after it
  std::set<int64_t> kept_;    ///< saves whose checkpoints are whole before and after
  int states_ = 0;
};

TEST_P(RunFolderCrashTest, OldOrNewNeverNeither) {
  Rehearse();
  ASSERT_GT(end_, begin_);
  const Crash killed = {Keeps::kAll, Keeps::kAll, 0};
  const Crash none = {Keeps::kNothing, Keeps::kNothing, 0};
  const Crash names = {Keeps::kAll, Keeps::kNothing, 0};
  const Crash data = {Keeps::kNothing, Keeps::kAll, 0};
  for (int calls = begin_; calls <= end_ && !HasFailure(); ++calls) {
    World world(spec_);
    GetParam().before(world);
    ASSERT_EQ(world.disk().calls(), begin_);
    world.disk().StopAfter(calls);
    GetParam().action(world);
    world.Die();
    ASSERT_EQ(world.disk().calls(), calls);
    const auto seed = static_cast<uint64_t>(calls);
    std::vector<Crash> crashes = {killed, none, names, data};
    for (uint64_t i = 0; i < kSeeds; ++i) {
      crashes.push_back({Keeps::kSome, Keeps::kSome, kSeeds * seed + i});
      crashes.push_back({Keeps::kSome, Keeps::kAll, kSeeds * seed + i});
    }
    for (const Crash& crash : crashes) {
      SCOPED_TRACE(absl::StrCat("crash after call ", calls - begin_, " of ", end_ - begin_, ", seed ", crash.seed));
      CheckCrash(world, calls, crash);
    }
    // The process was killed there; the machine goes down later, while the next one recovers.
    world.disk().GoOn();
    world.Open();
    world.Load();
    world.Die();
    for (int later = calls + 1; later <= world.disk().calls() && !HasFailure(); ++later) {
      SCOPED_TRACE(absl::StrCat("killed after call ", calls - begin_, " of ", end_ - begin_, "; power lost after call ",
                                later - calls, " of the next process"));
      CheckCrash(world, later, none);
      CheckCrash(world, later, {Keeps::kSome, Keeps::kSome, seed + static_cast<uint64_t>(later)});
    }
  }
  std::printf("%d crash states after %d calls\n", states_, end_ - begin_);
}

void OpenAndSave(World& world) {
  world.Open();
  world.Save(100, /*is_best=*/true);
}

void OpenAndSaveTwice(World& world) {
  OpenAndSave(world);
  world.Save(200);
}

void TrainAndDie(World& world) {
  OpenAndSave(world);
  world.Die();
}

Scenario FirstSave() {
  return {"FirstSave", [](World&) {}, OpenAndSave};
}

Scenario NewStepWithPrune() {
  const auto before = [](World& world) {
    OpenAndSaveTwice(world);
    world.Save(300);
  };
  return {"NewStepWithPrune", before, [](World& world) { world.Save(400); }};
}

Scenario NewBestWithPrune() {
  const auto before = [](World& world) {
    OpenAndSaveTwice(world);
    world.Save(300);
  };
  return {"NewBestWithPrune", before, [](World& world) { world.Save(400, /*is_best=*/true); }};
}

Scenario OneIsKept() {
  const auto before = [](World& world) {
    world.KeepOne();
    world.Open();
    world.Save(100);
  };
  return {"OneIsKept", before, [](World& world) { world.Save(200); }};
}

Scenario SameStepOfTheOnlyOne() {
  return {"SameStepOfTheOnlyOne", OpenAndSave, [](World& world) { world.Save(100); }};
}

Scenario BestMoves() {
  return {"BestMoves", OpenAndSaveTwice, [](World& world) { world.SaveAgain(200, /*is_best=*/true); }};
}

Scenario ResumeAndSaveTheSameStep() {
  const auto action = [](World& world) {
    world.Open();
    world.Load();
    world.Save(100);
  };
  return {"ResumeAndSaveTheSameStep", TrainAndDie, action};
}

Scenario DamagedOneSetAside() {
  const auto before = [](World& world) {
    OpenAndSaveTwice(world);
    world.Damage("200");
    world.Die();
  };
  const auto action = [](World& world) {
    world.Open();
    world.Load();
    world.Save(200);
  };
  return {"DamagedOneSetAside", before, action, /*damaged=*/"200"};
}

Scenario TheOnlyOneDamaged() {
  const auto before = [](World& world) {
    OpenAndSave(world);
    world.Damage("100");
    world.Die();
  };
  const auto action = [](World& world) {
    world.Open();
    world.Load();
  };
  Scenario scenario{"TheOnlyOneDamaged", before, action, /*damaged=*/"100"};
  scenario.none_usable = true;
  return scenario;
}

Scenario StartOver() {
  const auto action = [](World& world) {
    world.StartOver();
    world.Save(100);
  };
  Scenario scenario{"StartOver", TrainAndDie, action};
  scenario.starts_over = true;
  return scenario;
}

INSTANTIATE_TEST_SUITE_P(All, RunFolderCrashTest,
                         ::testing::Values(FirstSave(), NewStepWithPrune(), NewBestWithPrune(), OneIsKept(),
                                           SameStepOfTheOnlyOne(), BestMoves(), ResumeAndSaveTheSameStep(),
                                           DamagedOneSetAside(), TheOnlyOneDamaged(), StartOver()),
                         [](const ::testing::TestParamInfo<Scenario>& info) { return info.param.name; });

}  // namespace
}  // namespace troupe::storage
