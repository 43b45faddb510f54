#include "lib/storage/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"

namespace troupe::storage {
namespace {

constexpr char kCheckpoints[] = "checkpoints";
constexpr char kLatest[] = "latest";
constexpr char kBest[] = "best";
constexpr char kEpochFile[] = "learner_epoch";
constexpr char kUnfinished[] = ".unfinished-";

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

/// An exclusive lock that the kernel drops with the process.
absl::StatusOr<int> TakeLock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::PermissionDeniedError(absl::StrCat("run folder is not writable: ", std::strerror(errno)));
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    return absl::FailedPreconditionError("run folder is in use by another learner");
  }
  return fd;
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
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.env_steps < b.env_steps; });
  return entries;
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
  return absl::NotFoundError(absl::StrCat("no checkpoint \"", which, "\" in \"", run, "\"; there are: ",
                                          absl::StrJoin(entries, ", ", [](std::string* out, const CheckpointEntry& e) {
                                            absl::StrAppend(out, e.env_steps);
                                          })));
}

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Open(Options options, FileSystem& fs) {
  const std::string& run = options.directory;
  const bool has_run = fs.Exists(run + "/config.yaml");
  if (has_run && !options.resume) {
    return absl::AlreadyExistsError(
        absl::StrCat("\"", run, "\" already holds a run; resume it with --resume or choose another name"));
  }
  if (!has_run && options.resume) return absl::NotFoundError(absl::StrCat("no run to resume in \"", run, "\""));
  if (options.keep < 1)
    return absl::InvalidArgumentError(absl::StrCat("keep is ", options.keep, "; expected at least 1"));
  const absl::Status made = fs.MakeDirectories(absl::StrCat(run, "/", kCheckpoints));
  if (!made.ok()) {
    return absl::Status(made.code(), absl::StrCat("run folder \"", run, "\" cannot be made: ", made.message()));
  }
  TROUPE_ASSIGN_OR_RETURN(const int lock_fd, TakeLock(run + "/lock"));
  // From here on the lock is held by `folder`.
  std::unique_ptr<RunFolder> folder;
  {
    const absl::StatusOr<uint64_t> epoch = ReadEpoch(fs, absl::StrCat(run, "/", kEpochFile));
    folder.reset(new RunFolder(options, fs, lock_fd, epoch.ok() ? *epoch + 1 : 0));
    if (!epoch.ok()) return epoch.status();
  }
  TROUPE_RETURN_IF_ERROR(ReplaceFile(fs, folder->Path(kEpochFile), absl::StrCat(folder->learner_epoch_, "\n")));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(absl::StrCat(run, "/", kCheckpoints)));
  for (const std::string& name : names) {
    if (absl::StartsWith(name, kUnfinished)) TROUPE_RETURN_IF_ERROR(fs.RemoveTree(folder->CheckpointPath(name)));
  }
  TROUPE_RETURN_IF_ERROR(ReplaceFile(fs, folder->Path("config.yaml"), folder->options_.checkpoint.config_yaml));
  return folder;
}

RunFolder::RunFolder(Options options, FileSystem& fs, int lock_fd, uint64_t learner_epoch)
    : options_(std::move(options)), fs_(fs), lock_fd_(lock_fd), learner_epoch_(learner_epoch) {}

RunFolder::~RunFolder() { ::close(lock_fd_); }

absl::StatusOr<learner::LearnerState> RunFolder::LoadLatest(std::vector<std::string>* quarantined) {
  TROUPE_ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, ListCheckpoints(fs_, options_.directory));
  for (; !entries.empty(); entries.pop_back()) {
    const std::string& path = entries.back().path;
    absl::StatusOr<learner::LearnerState> state =
        ReadCheckpoint(fs_, path, options_.specs, options_.checkpoint.spec_hash);
    if (state.ok() || state.status().code() == absl::StatusCode::kFailedPrecondition) return state;
    std::string aside = path + ".corrupt";
    for (int n = 2; fs_.Exists(aside); ++n) aside = absl::StrCat(path, ".corrupt-", n);
    TROUPE_RETURN_IF_ERROR(fs_.Rename(path, aside));
    quarantined->push_back(std::string(state.status().message()));
  }
  return absl::NotFoundError(absl::StrCat("no usable checkpoint in \"", options_.directory, "\""));
}

absl::Status RunFolder::DiscardIfNew() {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(fs_, options_.directory));
  if (learner_epoch_ > 1 || !entries.empty()) return absl::OkStatus();
  return fs_.RemoveTree(options_.directory);
}

absl::Status RunFolder::CheckStillOurs() {
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
                    there->state.best_return == state.best_return;
  if (!same) {
    const std::string unfinished = CheckpointPath(kUnfinished + name);
    TROUPE_RETURN_IF_ERROR(fs_.RemoveTree(unfinished));
    TROUPE_RETURN_IF_ERROR(fs_.MakeDirectories(unfinished));
    absl::Status written = WriteCheckpointFiles(fs_, unfinished, state, options_.specs, options_.checkpoint);
    if (written.ok()) written = CheckStillOurs();
    if (written.ok() && fs_.Exists(path)) written = fs_.RemoveTree(path);
    if (written.ok()) written = fs_.Rename(unfinished, path);
    if (!written.ok()) {
      // Room for the next try; if even this fails, the next try removes it.
      fs_.RemoveTree(unfinished).IgnoreError();
      return written;
    }
  }
  TROUPE_RETURN_IF_ERROR(fs_.ReplaceLink(name, CheckpointPath(kLatest)));
  if (is_best) TROUPE_RETURN_IF_ERROR(fs_.ReplaceLink(name, CheckpointPath(kBest)));
  TROUPE_RETURN_IF_ERROR(fs_.SyncDirectory(absl::StrCat(options_.directory, "/", kCheckpoints)));
  return Prune();
}

absl::Status RunFolder::Prune() {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(fs_, options_.directory));
  const int excess = static_cast<int>(entries.size()) - options_.keep;
  for (int i = 0; i < excess; ++i) {
    if (entries[i].is_latest || entries[i].is_best) continue;
    TROUPE_RETURN_IF_ERROR(fs_.RemoveTree(entries[i].path));
  }
  return absl::OkStatus();
}

}  // namespace troupe::storage
