#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/status_macros.h"
#include "lib/learner/checkpoint.h"
#include "lib/policy/policy_fwd.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/file_system.h"
#include "lib/storage/run_lock.h"

namespace troupe::storage {

/// File of a run that began in the place of one that MoveRunAside moved away: where that lies.
inline constexpr char kStartedOverFile[] = "started_over";

/// One checkpoint of a run, as `troupe checkpoint ls` shows it.
struct CheckpointEntry {
  int64_t env_steps = 0;
  std::string path;
  bool is_latest = false;
  bool is_best = false;
};

/// The checkpoints of `run`, ascending by env steps; NOT_FOUND when there is no run. Reads no contents.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem& fs, const std::string& run);

/// The directory of a checkpoint by name: "latest", "best" or a number of env steps. NOT_FOUND says what there is.
absl::StatusOr<std::string> FindCheckpoint(FileSystem& fs, const std::string& run, const std::string& which);

/// The result of `read` for the checkpoint directory that `find` returns, whose errors it has, too. A learner may
/// remove the checkpoint while it is read: what is found by then is read instead, kMostLooks times in all.
inline constexpr int kMostLooks = 10;
template <typename Find, typename Read>
auto ReadFoundCheckpoint(FileSystem& fs, Find find, Read read) -> decltype(read(std::string())) {
  for (int look = 1;; ++look) {
    TROUPE_ASSIGN_OR_RETURN(const std::string path, find());
    auto result = read(path);
    if (result.ok() || look == kMostLooks || fs.Exists(path)) return result;
  }
}
/// The same of the checkpoint that `which` names (FindCheckpoint).
template <typename Read>
auto ReadNamedCheckpoint(FileSystem& fs, const std::string& run, const std::string& which, Read read)
    -> decltype(read(std::string())) {
  return ReadFoundCheckpoint(
      fs, [&] { return FindCheckpoint(fs, run, which); }, std::move(read));
}

/// Removes all checkpoints of `run` but the newest `keep` (at least 1), the newest and the best; how many it has
/// removed. Whoever reads one meanwhile finds it whole or not at all. Only who holds the run's lock may.
absl::StatusOr<int64_t> PruneCheckpoints(FileSystem& fs, const std::string& run, int keep);

/// One run's folder, held exclusively by one learner at a time:
///   config.yaml, learner_epoch, lock, progress.jsonl, summary.json, events.out.tfevents.*, address and control/ (while
///   it trains), torchscript/<SHA-256>.pt (of users' networks), videos/<env_steps>.gif (of evaluations),
///   checkpoints/<env_steps>/, checkpoints/latest, checkpoints/best, policy_map/ (a cache, while it trains),
///   had_checkpoint (there before the first one is), started_over (of a run in the place of one that was moved away).
/// In checkpoints/ lie besides, for a moment or after a crash:
///   .unfinished-N  is being written; used where a crash left nothing else that is whole, else removed;
///   .replaced-N    the older of two of N env steps; put back unless the newer one is in place, removed when that is
///                  durable;
///   .discarded-N   is being removed;
///   N.corrupt[-K]  was found damaged; never removed.
/// Invariants, at any crash: 1. what Save reported is found again, or something newer; 2. who reads what is there sees
/// whole checkpoints; 3. a checkpoint in place means that `had_checkpoint` is there.
/// Made by lib/run, used from a service's threads: Save from the checkpoint thread, the rest at start-up. The lock is
/// released when the object or the process dies.
class RunFolder final : public learner::CheckpointStore {
 public:
  struct Options {
    std::string directory;  ///< the run folder itself
    bool resume = false;    ///< false: refuse a folder that holds a run
    int keep = 3;           ///< checkpoints that stay besides `latest` and `best`; at least 1
    CheckpointOptions checkpoint;
    std::string config_yaml;  ///< the run's config.yaml; empty: that of checkpoints
    std::vector<policy::PolicySpec> specs;
    std::string started_over;  ///< for a new run: the folder that the one before was moved to; empty: there was none
  };

  /// Makes or takes the folder, takes its lock, counts its learner epoch up and ends what a crash left half done, all
  /// durably. Errors: ALREADY_EXISTS (a run
  /// is there, no resume), NOT_FOUND (resume, but no run), PERMISSION_DENIED (not writable), FAILED_PRECONDITION
  /// (another learner holds it).
  static absl::StatusOr<std::unique_ptr<RunFolder>> Open(Options options, FileSystem& fs = FileSystem::Posix());
  ~RunFolder() override;
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& directory() const { return options_.directory; }
  /// This learner's boot counter, from 1.
  uint64_t learner_epoch() const { return learner_epoch_; }
  std::string Path(const std::string& name) const { return options_.directory + "/" + name; }

  /// The newest checkpoint that is whole. Damaged ones are renamed to `<name>.corrupt` (never deleted) and their errors
  /// appended to `quarantined`. NOT_FOUND when the run never had one: it begins. FAILED_PRECONDITION, with
  /// ExitCode::kRefused, when it had but none is usable, or when the newest is of another run. PERMISSION_DENIED or
  /// INTERNAL when the newest cannot be opened: it stays where it is.
  absl::StatusOr<learner::LearnerState> LoadLatest(std::vector<std::string>* quarantined);

  /// Removes the whole folder if this learner made it and has saved nothing in it: a start that failed leaves nothing
  /// behind.
  absl::Status DiscardIfNew();

  /// See CheckpointStore. ABORTED when another learner has taken the run over (a higher epoch on disk),
  /// NOT_FOUND when the folder is gone.
  absl::Status Save(const learner::LearnerState& state, bool is_best) override;
  absl::Status SaveTo(const learner::LearnerState& state, const std::string& path) override;
  absl::StatusOr<int64_t> Prune(int keep) override;

 private:
  RunFolder(Options options, FileSystem& fs, std::unique_ptr<RunLock> lock, uint64_t learner_epoch);

  std::string CheckpointPath(const std::string& name) const { return options_.directory + "/checkpoints/" + name; }
  absl::StatusOr<std::vector<std::string>> ListNames() const;
  absl::Status SyncCheckpoints();
  absl::Status CheckStillOurs();
  absl::Status RemoveAll(const std::string& prefix);
  absl::Status RemoveDiscarded();
  /// Ends what a crash, or an error, left half done of replacing a checkpoint.
  absl::Status SettleReplaced();
  /// Notes durably that there is a checkpoint, before there is one.
  absl::Status NoteHadCheckpoint();
  /// Puts the whole checkpoint `.unfinished-<name>` in its place, durably.
  absl::Status Commit(const std::string& name);
  absl::Status UpdateLinks(const std::string& name, bool is_best);
  absl::StatusOr<learner::LearnerState> LoadNewest(std::vector<std::string>* quarantined);
  absl::StatusOr<learner::LearnerState> LoadUnfinished();
  /// Whether there ever was a checkpoint.
  bool HadCheckpoint(const std::vector<std::string>& names) const;
  absl::Status NoneUsable(const std::vector<std::string>& names, const std::vector<std::string>& damages) const;

  const Options options_;
  FileSystem& fs_;
  const std::unique_ptr<RunLock> lock_;
  const uint64_t learner_epoch_;
  bool had_checkpoint_ = false;  ///< the note of it is durable
};

}  // namespace troupe::storage
