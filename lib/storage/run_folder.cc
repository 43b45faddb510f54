#include "lib/storage/run_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_spec.h"

namespace troupe::storage {
namespace {

constexpr char kCheckpoints[] = "checkpoints";
constexpr char kLatest[] = "latest";
constexpr char kBest[] = "best";
constexpr char kEpochFile[] = "learner_epoch";
constexpr char kHadCheckpoint[] = "had_checkpoint";
constexpr char kUnfinished[] = ".unfinished-";
constexpr char kReplaced[] = ".replaced-";
constexpr char kDiscarded[] = ".discarded-";
constexpr char kCorrupt[] = ".corrupt";
constexpr size_t kMostNamed = 8;  // checkpoints in one line of an error

std::optional<int64_t> StepsOf(const std::string& name) {
  int64_t steps = 0;
  // SimpleAtoi takes signs and blanks; a checkpoint's name is digits alone.
  const bool digits = std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  return !name.empty() && digits && absl::SimpleAtoi(name, &steps) ? std::optional<int64_t>(steps) : std::nullopt;
}

std::string LinkTarget(FileSystem& fs, const std::string& link) {
  const absl::StatusOr<std::string> target = fs.ReadLink(link);
  return target.ok() ? *target : "";
}

absl::StatusOr<uint64_t> ReadEpoch(FileSystem& fs, const std::string& path) {
  if (!fs.Exists(path)) return 0;
  TROUPE_ASSIGN_OR_RETURN(const std::string text, fs.ReadFile(path, 64));
  uint64_t epoch = 0;
  if (!absl::SimpleAtoi(text, &epoch)) return absl::DataLossError("learner_epoch does not hold a number");
  return epoch;
}

/// Of names like ".unfinished-100": what follows the prefix.
std::optional<std::string> After(const char* prefix, const std::string& name) {
  return absl::StartsWith(name, prefix) ? std::optional<std::string>(name.substr(std::strlen(prefix))) : std::nullopt;
}

/// The run folder with the one for checkpoints, found again after a crash of the machine.
absl::Status MakeRunFolder(FileSystem& fs, const std::string& run) {
  const absl::Status made = MakeDurableDirectories(fs, absl::StrCat(run, "/", kCheckpoints));
  if (!made.ok()) {
    return absl::Status(made.code(), absl::StrCat("run folder \"", run, "\" cannot be made: ", made.message()));
  }
  // A process that was killed may have made them and not synced. The upper one may be nobody's to read.
  fs.SyncDirectory(FolderOf(FolderOf(run))).IgnoreError();
  return fs.SyncDirectory(FolderOf(run));
}

/// OK, too, when files are missing.
absl::Status CheckReadable(FileSystem& fs, const std::string& folder) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(folder));
  for (const std::string& name : names) {
    const absl::Status opened = fs.Open(absl::StrCat(folder, "/", name)).status();
    if (!opened.ok() && !absl::IsNotFound(opened)) return opened;
  }
  return absl::OkStatus();
}

bool IsDamaged(const std::string& name) {
  const size_t end = name.find(kCorrupt);
  return end != std::string::npos && StepsOf(name.substr(0, end)).has_value();
}

bool AnyOf(const std::vector<std::string>& names, const char* prefix) {
  return std::any_of(names.begin(), names.end(), [prefix](const std::string& name) { return After(prefix, name); });
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::binary_search(names.begin(), names.end(), name);
}

absl::Status RemoveAll(FileSystem& fs, const std::string& folder, const std::string& prefix) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(folder));
  for (const std::string& name : names) {
    if (absl::StartsWith(name, prefix)) TROUPE_RETURN_IF_ERROR(fs.RemoveTree(absl::StrCat(folder, "/", name)));
  }
  return absl::OkStatus();
}

absl::Status RemoveDiscarded(FileSystem& fs, const std::string& folder) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(folder));
  if (!AnyOf(names, kDiscarded)) return absl::OkStatus();
  // The old name goes for good before the files do: nobody ever finds half a checkpoint under it.
  TROUPE_RETURN_IF_ERROR(fs.SyncDirectory(folder));
  return RemoveAll(fs, folder, kDiscarded);
}

/// True if a checkpoint of the run in `run` may be written to `path`, beside all runs.
absl::Status CheckPlace(FileSystem& fs, const std::string& run, const std::string& path) {
  namespace fs_std = std::filesystem;
  const std::string shown = base::LogSafe(path, 512);
  const fs_std::path given(path);
  if (!given.is_absolute() || !given.has_filename() || given.filename() == "." || given.filename() == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat("got the path \"", shown, "\", expected an absolute one that ends in the checkpoint's name"));
  }
  std::error_code error;
  const fs_std::path folder = fs_std::canonical(given.parent_path(), error);
  if (error) return absl::NotFoundError(absl::StrCat("the folder of \"", shown, "\" is not there"));
  const fs_std::path own = fs_std::canonical(run, error);
  const bool in_run = !error && std::mismatch(own.begin(), own.end(), folder.begin(), folder.end()).first == own.end();
  if (in_run || (folder.filename() == kCheckpoints && fs.Exists((folder.parent_path() / kEpochFile).string()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("got \"", shown,
                     "\", which lies in a run; expected a path outside, or none: then the checkpoint "
                     "goes to the run's own"));
  }
  if (!fs_std::exists(fs_std::symlink_status(given, error)) || ReadManifest(fs, path).ok()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("\"", shown, "\" is there and is no checkpoint; expected a checkpoint to replace, or nothing"));
}

}  // namespace

absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem& fs, const std::string& run) {
  const std::string folder = absl::StrCat(run, "/", kCheckpoints);
  if (!fs.Exists(run + "/config.yaml")) return absl::NotFoundError(absl::StrCat("no run in \"", run, "\""));
  std::vector<CheckpointEntry> entries;
  if (!fs.Exists(folder)) return entries;
  const std::string latest = LinkTarget(fs, absl::StrCat(folder, "/", kLatest));
  const std::string best = LinkTarget(fs, absl::StrCat(folder, "/", kBest));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(folder));
  for (const std::string& name : names) {
    if (const std::optional<int64_t> steps = StepsOf(name)) {
      entries.push_back({*steps, absl::StrCat(folder, "/", name), name == latest, name == best});
      continue;
    }
    // A learner died, or is, between moving it away and putting the newer one in its place.
    const std::optional<std::string> replaced = After(kReplaced, name);
    const std::optional<int64_t> steps = replaced ? StepsOf(*replaced) : std::nullopt;
    if (!steps || Contains(names, *replaced)) continue;
    entries.push_back({*steps, absl::StrCat(folder, "/", name), *replaced == latest, *replaced == best});
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.env_steps < b.env_steps; });
  return entries;
}

absl::StatusOr<int64_t> PruneCheckpoints(FileSystem& fs, const std::string& run, int keep) {
  const std::string folder = absl::StrCat(run, "/", kCheckpoints);
  TROUPE_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(fs, run));
  const int excess = static_cast<int>(entries.size()) - keep;
  std::vector<std::string> unneeded;
  for (int i = 0; i < excess; ++i) {
    const std::string name = absl::StrCat(entries[i].env_steps);
    const bool is_replaced = entries[i].path != absl::StrCat(folder, "/", name);  // the next learner settles that
    if (!entries[i].is_latest && !entries[i].is_best && !is_replaced) unneeded.push_back(name);
  }
  TROUPE_RETURN_IF_ERROR(RemoveDiscarded(fs, folder));
  for (const std::string& name : unneeded) {
    TROUPE_RETURN_IF_ERROR(fs.Rename(absl::StrCat(folder, "/", name), absl::StrCat(folder, "/", kDiscarded, name)));
  }
  TROUPE_RETURN_IF_ERROR(fs.SyncDirectory(folder));  // the links, too
  TROUPE_RETURN_IF_ERROR(RemoveAll(fs, folder, kDiscarded));
  return static_cast<int64_t>(unneeded.size());
}

absl::StatusOr<std::string> FindCheckpoint(FileSystem& fs, const std::string& run, const std::string& which) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(fs, run));
  for (const CheckpointEntry& entry : entries) {
    if ((which == kLatest && entry.is_latest) || (which == kBest && entry.is_best) ||
        which == absl::StrCat(entry.env_steps)) {
      return entry.path;
    }
  }
  // A crash between the rename and the link leaves the newest checkpoint unlinked; it is whole all the same.
  if (which == kLatest && !entries.empty()) return entries.back().path;
  const std::string what = absl::StrCat("no checkpoint \"", base::LogSafe(which, 64), "\" in \"", run, "\": ");
  if (entries.empty()) {
    return absl::NotFoundError(absl::StrCat(what,
                                            "it has none yet, expected at least one; the first comes after "
                                            "experiment.checkpoint_interval env steps, and one at the end of the run"));
  }
  const auto append_steps = [](std::string* out, const CheckpointEntry& e) { absl::StrAppend(out, e.env_steps); };
  return absl::NotFoundError(absl::StrCat(what, "expected latest, best or one of ",
                                          absl::StrJoin(entries, ", ", append_steps),
                                          "; `troupe checkpoint ls` says more of them"));
}

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Open(Options options, FileSystem& fs) {
  const std::string run = options.directory;
  const bool has_run = fs.Exists(run + "/config.yaml");
  if (has_run && !options.resume) {
    return base::WithExitCode(absl::AlreadyExistsError(absl::StrCat(
                                  "\"", run, "\" already holds a run; resume it with --resume or choose another name")),
                              base::ExitCode::kRefused);
  }
  if (!has_run && options.resume) return absl::NotFoundError(absl::StrCat("no run to resume in \"", run, "\""));
  if (options.keep < 1)
    return absl::InvalidArgumentError(absl::StrCat("keep is ", options.keep, "; expected at least 1"));
  TROUPE_RETURN_IF_ERROR(MakeRunFolder(fs, run));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<RunLock> lock, RunLock::Take(run));
  TROUPE_ASSIGN_OR_RETURN(const uint64_t epoch, ReadEpoch(fs, absl::StrCat(run, "/", kEpochFile)));
  std::unique_ptr<RunFolder> folder(new RunFolder(std::move(options), fs, std::move(lock), epoch + 1));
  TROUPE_RETURN_IF_ERROR(ReplaceFile(fs, folder->Path(kEpochFile), absl::StrCat(folder->learner_epoch_, "\n")));
  // The folder was synced just now, and so the note is durable.
  folder->had_checkpoint_ = fs.Exists(folder->Path(kHadCheckpoint));
  TROUPE_RETURN_IF_ERROR(folder->RemoveDiscarded());
  TROUPE_RETURN_IF_ERROR(folder->SettleReplaced());
  if (!folder->options_.started_over.empty()) {
    TROUPE_RETURN_IF_ERROR(ReplaceFile(fs, folder->Path(kStartedOverFile), folder->options_.started_over + "\n"));
  }
  // The last one: from here on there is a run.
  TROUPE_RETURN_IF_ERROR(ReplaceFile(
      fs, folder->Path("config.yaml"),
      folder->options_.config_yaml.empty() ? folder->options_.checkpoint.config_yaml : folder->options_.config_yaml));
  return folder;
}

RunFolder::RunFolder(Options options, FileSystem& fs, std::unique_ptr<RunLock> lock, uint64_t learner_epoch)
    : options_(std::move(options)), fs_(fs), lock_(std::move(lock)), learner_epoch_(learner_epoch) {}

RunFolder::~RunFolder() = default;

absl::StatusOr<std::vector<std::string>> RunFolder::ListNames() const { return fs_.List(Path(kCheckpoints)); }

absl::Status RunFolder::SyncCheckpoints() { return fs_.SyncDirectory(Path(kCheckpoints)); }

absl::Status RunFolder::RemoveAll(const std::string& prefix) {
  return storage::RemoveAll(fs_, Path(kCheckpoints), prefix);
}

absl::Status RunFolder::RemoveDiscarded() { return storage::RemoveDiscarded(fs_, Path(kCheckpoints)); }

absl::Status RunFolder::SettleReplaced() {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNames());
  if (!AnyOf(names, kReplaced)) return absl::OkStatus();
  // The newer one may be seen and yet not be durable, if the process that put it there was killed.
  TROUPE_RETURN_IF_ERROR(SyncCheckpoints());
  for (const std::string& name : names) {
    const std::optional<std::string> replaced = After(kReplaced, name);
    if (!replaced) continue;
    const std::string to = Contains(names, *replaced) ? kDiscarded + *replaced : *replaced;
    TROUPE_RETURN_IF_ERROR(fs_.Rename(CheckpointPath(name), CheckpointPath(to)));
  }
  return RemoveDiscarded();
}

absl::StatusOr<learner::LearnerState> RunFolder::LoadNewest(std::vector<std::string>* quarantined) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, ListCheckpoints(fs_, options_.directory));
  for (; !entries.empty(); entries.pop_back()) {
    const std::string& path = entries.back().path;
    absl::StatusOr<learner::LearnerState> state =
        ReadCheckpoint(fs_, path, options_.specs, options_.checkpoint.spec_hash);
    if (state.status().code() == absl::StatusCode::kFailedPrecondition) {
      return base::WithExitCode(state.status(), base::ExitCode::kRefused);
    }
    if (state.ok()) {
      TROUPE_RETURN_IF_ERROR(UpdateLinks(absl::StrCat(entries.back().env_steps), /*is_best=*/false));
      return state;
    }
    // What we may not read, or have no descriptor for, is not damaged.
    TROUPE_RETURN_IF_ERROR(CheckReadable(fs_, path));
    std::string aside = path + kCorrupt;
    for (int n = 2; fs_.Exists(aside); ++n) aside = absl::StrCat(path, kCorrupt, "-", n);
    TROUPE_RETURN_IF_ERROR(fs_.Rename(path, aside));
    // One of that name is written again, perhaps: this one is not to be lost under it.
    TROUPE_RETURN_IF_ERROR(SyncCheckpoints());
    quarantined->push_back(std::string(state.status().message()));
  }
  return absl::NotFoundError(absl::StrCat("no checkpoint in \"", options_.directory, "\""));
}

absl::StatusOr<learner::LearnerState> RunFolder::LoadUnfinished() {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNames());
  std::vector<int64_t> unfinished;
  for (const std::string& name : names) {
    const std::optional<std::string> of = After(kUnfinished, name);
    const std::optional<int64_t> steps = of ? StepsOf(*of) : std::nullopt;
    if (steps) unfinished.push_back(*steps);
  }
  std::sort(unfinished.begin(), unfinished.end());
  for (; !unfinished.empty(); unfinished.pop_back()) {
    const std::string name = absl::StrCat(unfinished.back());
    const std::string path = CheckpointPath(kUnfinished + name);
    absl::StatusOr<learner::LearnerState> state =
        ReadCheckpoint(fs_, path, options_.specs, options_.checkpoint.spec_hash);
    if (!state.ok()) continue;
    // Who wrote it may have been killed before it was synced.
    TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> files, fs_.List(path));
    for (const std::string& file : files) TROUPE_RETURN_IF_ERROR(fs_.SyncFile(absl::StrCat(path, "/", file)));
    TROUPE_RETURN_IF_ERROR(fs_.SyncDirectory(path));
    TROUPE_RETURN_IF_ERROR(Commit(name));
    TROUPE_RETURN_IF_ERROR(UpdateLinks(name, /*is_best=*/false));
    return state;
  }
  return absl::NotFoundError(absl::StrCat("no checkpoint in \"", options_.directory, "\""));
}

absl::StatusOr<learner::LearnerState> RunFolder::LoadLatest(std::vector<std::string>* quarantined) {
  absl::StatusOr<learner::LearnerState> state = LoadNewest(quarantined);
  if (absl::IsNotFound(state.status())) state = LoadUnfinished();
  if (absl::IsNotFound(state.status())) {
    TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListNames());
    if (HadCheckpoint(names)) return NoneUsable(names, *quarantined);
  } else if (!state.ok()) {
    return state;
  }
  TROUPE_RETURN_IF_ERROR(RemoveAll(kUnfinished));
  return state;
}

bool RunFolder::HadCheckpoint(const std::vector<std::string>& names) const {
  // Versions before the note left only the checkpoints themselves.
  return had_checkpoint_ || std::any_of(names.begin(), names.end(), [](const std::string& name) {
           return StepsOf(name).has_value() || IsDamaged(name);
         });
}

absl::Status RunFolder::NoneUsable(const std::vector<std::string>& names,
                                   const std::vector<std::string>& damages) const {
  std::vector<std::string> there;
  for (const std::string& name : names) {
    if (IsDamaged(name) || After(kUnfinished, name)) there.push_back(name);
  }
  const size_t others = there.size() > kMostNamed ? there.size() - kMostNamed : 0;
  there.resize(there.size() - others);
  const std::string& run = options_.directory;
  return base::WithExitCode(
      absl::FailedPreconditionError(
          absl::StrCat("the run \"", run, "\" had checkpoints and none of them is usable; in ", kCheckpoints,
                       "/ there ", there.empty() ? "is nothing" : absl::StrCat("are: ", absl::StrJoin(there, ", ")),
                       others > 0 ? absl::StrCat(" and ", others, " more") : "",
                       damages.empty() ? "" : absl::StrCat(" (", damages.front(), ")"),
                       ". It does not begin at 0 by itself: put a whole one back, or add --start-over ",
                       std::filesystem::path(run).filename().string(),
                       " to --name or --resume (in the place of --resume-or-start), which moves this run away and "
                       "begins anew")),
      base::ExitCode::kRefused);
}

absl::Status RunFolder::DiscardIfNew() {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(fs_, options_.directory));
  if (learner_epoch_ > 1 || had_checkpoint_ || !entries.empty()) return absl::OkStatus();
  return fs_.RemoveTree(options_.directory);
}

absl::Status RunFolder::CheckStillOurs() {
  if (!fs_.Exists(Path(kEpochFile))) return absl::NotFoundError("the run folder is gone");
  TROUPE_ASSIGN_OR_RETURN(const uint64_t epoch, ReadEpoch(fs_, Path(kEpochFile)));
  if (epoch == learner_epoch_) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("the run was taken over by learner epoch ", epoch, "; this is ", learner_epoch_));
}

absl::Status RunFolder::Save(const learner::LearnerState& state, bool is_best) {
  const std::string name = absl::StrCat(state.env_steps);
  const std::string path = CheckpointPath(name);
  // Saved already, by the interval, and now found to be the best: only the link is missing.
  const absl::StatusOr<CheckpointManifest> there = ReadManifest(fs_, path);
  const auto revision = [](const learner::LearnerState& of) { return of.table == nullptr ? 0 : of.table->revision(); };
  const bool same = there.ok() && there->state.iteration == state.iteration &&
                    revision(there->state) == revision(state) && there->state.learner_epoch == state.learner_epoch &&
                    there->state.best_return == state.best_return && there->state.best_by == state.best_by;
  if (!same) {
    const std::string unfinished = CheckpointPath(kUnfinished + name);
    TROUPE_RETURN_IF_ERROR(CheckStillOurs());  // or what was deleted would be made anew
    TROUPE_RETURN_IF_ERROR(fs_.RemoveTree(unfinished));
    TROUPE_RETURN_IF_ERROR(fs_.MakeDirectories(unfinished));
    absl::Status written = WriteCheckpointFiles(fs_, unfinished, state, options_.specs, options_.checkpoint);
    if (written.ok()) written = CheckStillOurs();
    if (written.ok()) written = Commit(name);
    if (!written.ok()) {
      // Room for the next try; if even this fails, the next try removes it.
      fs_.RemoveTree(unfinished).IgnoreError();
      return written;
    }
  }
  TROUPE_RETURN_IF_ERROR(UpdateLinks(name, is_best));
  // What was the best by a return that says nothing any more is none.
  if (state.best_by.empty()) TROUPE_RETURN_IF_ERROR(fs_.RemoveTree(CheckpointPath(kBest)));
  return Prune(options_.keep).status();
}

absl::Status RunFolder::SaveTo(const learner::LearnerState& state, const std::string& path) {
  const std::string folder = FolderOf(path);
  TROUPE_RETURN_IF_ERROR(CheckPlace(fs_, options_.directory, path));
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string unfinished = absl::StrCat(folder, "/.troupe-unfinished-", name);
  const std::string replaced = absl::StrCat(folder, "/.troupe-replaced-", name);
  TROUPE_RETURN_IF_ERROR(fs_.RemoveTree(unfinished));
  TROUPE_RETURN_IF_ERROR(fs_.MakeDirectories(unfinished));
  absl::Status written = WriteCheckpointFiles(fs_, unfinished, state, options_.specs, options_.checkpoint);
  // In the meantime somebody else may have taken the place.
  if (written.ok()) written = CheckPlace(fs_, options_.directory, path);
  const bool replaces = fs_.Exists(path);
  if (written.ok() && replaces) written = fs_.RemoveTree(replaced);  // of a process that died here
  if (written.ok() && replaces) written = fs_.Rename(path, replaced);
  if (written.ok()) {
    written = fs_.Rename(unfinished, path);
    if (!written.ok() && replaces) fs_.Rename(replaced, path).IgnoreError();
  }
  if (!written.ok()) {
    fs_.RemoveTree(unfinished).IgnoreError();
    return written;
  }
  TROUPE_RETURN_IF_ERROR(fs_.SyncDirectory(folder));
  return replaces ? fs_.RemoveTree(replaced) : absl::OkStatus();
}

absl::Status RunFolder::NoteHadCheckpoint() {
  if (had_checkpoint_) return absl::OkStatus();
  // What the note speaks of is found even if the commit is not: the unfinished checkpoint.
  TROUPE_RETURN_IF_ERROR(SyncCheckpoints());
  TROUPE_RETURN_IF_ERROR(ReplaceFile(fs_, Path(kHadCheckpoint),
                                     "This run has had a checkpoint: it never begins at 0 env steps by itself.\n"));
  had_checkpoint_ = true;
  return absl::OkStatus();
}

absl::Status RunFolder::Commit(const std::string& name) {
  const std::string path = CheckpointPath(name);
  const std::string replaced = CheckpointPath(kReplaced + name);
  TROUPE_RETURN_IF_ERROR(SettleReplaced());
  TROUPE_RETURN_IF_ERROR(NoteHadCheckpoint());
  const bool replaces = fs_.Exists(path);
  if (replaces) TROUPE_RETURN_IF_ERROR(fs_.Rename(path, replaced));
  const absl::Status renamed = fs_.Rename(CheckpointPath(kUnfinished + name), path);
  if (!renamed.ok()) {
    // If this fails, too, the next commit or the next process does it.
    if (replaces) fs_.Rename(replaced, path).IgnoreError();
    return renamed;
  }
  return SyncCheckpoints();
}

absl::Status RunFolder::UpdateLinks(const std::string& name, bool is_best) {
  const std::string latest = CheckpointPath(kLatest);
  const std::string best = CheckpointPath(kBest);
  const std::string latest_name = LinkTarget(fs_, latest);
  // One that an evaluation beside training found the best may be older than the newest.
  const bool is_older =
      StepsOf(latest_name).value_or(-1) > StepsOf(name).value_or(0) && fs_.Exists(CheckpointPath(latest_name));
  const bool latest_moves = latest_name != name && !is_older;
  const bool best_moves = is_best && LinkTarget(fs_, best) != name;
  if (latest_moves) TROUPE_RETURN_IF_ERROR(fs_.ReplaceLink(name, latest));
  if (best_moves) TROUPE_RETURN_IF_ERROR(fs_.ReplaceLink(name, best));
  // Where `best` led to may be pruned now; where `latest` led to is found without the link, too.
  return best_moves ? SyncCheckpoints() : absl::OkStatus();
}

absl::StatusOr<int64_t> RunFolder::Prune(int keep) {
  TROUPE_RETURN_IF_ERROR(SettleReplaced());
  return PruneCheckpoints(fs_, options_.directory, keep);
}

}  // namespace troupe::storage
