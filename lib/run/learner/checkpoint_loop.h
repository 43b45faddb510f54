#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/learner/checkpoint.h"
#include "lib/run/learner/degradations.h"

namespace troupe::run {

/// Writes checkpoints in a thread of their own, so that training pauses only for the copy of its state. Of the run it
/// holds at most two states to be written, the newest and the newest best; a newer one replaces an older one and serves
/// who asked for that. Of what is asked for besides, SaveTo and Prune, kMaxJobs wait. Thread-safe. States: running ->
/// stopped (Stop: what is waiting is still written).
class CheckpointLoop {
 public:
  /// Called once when the checkpoint is durable (its env steps), or with the reason why not.
  using Done = std::function<void(absl::StatusOr<int64_t>)>;

  /// Hears of every state that was written, or not: on the loop's thread, which must not wait for it.
  using Listener = std::function<void(const absl::Status& saved, int64_t env_steps, bool is_best)>;

  /// Both outlive the loop. While checkpoints cannot be written `degradations` says so.
  CheckpointLoop(learner::CheckpointStore* store, Degradations* degradations)
      : store_(store), degradations_(degradations) {}

  /// Never blocks on the disk. `done` may be empty. A state that is older than one that waits replaces none: an
  /// evaluation beside training has found it the best.
  void Save(learner::LearnerState state, bool is_best, Done done = nullptr);
  /// As Save, but to `path`, outside the run's folder (CheckpointStore::SaveTo). `done` gets RESOURCE_EXHAUSTED at once
  /// where kMaxJobs wait. The run's own checkpoints stay as they are, and the listener hears nothing.
  void SaveTo(learner::LearnerState state, const std::string& path, Done done);
  /// Removes the run's older checkpoints (CheckpointStore::Prune). `done` gets how many, or an error as of SaveTo.
  void Prune(int keep, Done done);
  /// Before the thread runs.
  void SetListener(Listener listener) { listener_ = std::move(listener); }
  /// The thread's body: writes until Stop.
  void Run();
  /// Waits for a state and writes it, or for a job and does it; false when stopped and nothing is left.
  bool Step();
  void Stop();

  /// Why the last write failed; empty after one that succeeded. Training goes on: DEGRADED, not dead.
  std::string last_error() const;
  int64_t last_saved_env_steps() const;

 private:
  struct Order {
    learner::LearnerState state;
    bool is_best = false;
    std::vector<Done> done;
  };

  using Job = std::function<absl::StatusOr<int64_t>()>;
  static constexpr size_t kMaxJobs = 4;
  void Post(Job job, Done done);
  /// `saved`: how writing the state of `env_steps` went.
  void Note(const absl::Status& saved, int64_t env_steps);

  learner::CheckpointStore* const store_;
  Degradations* const degradations_;
  Listener listener_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Order> waiting_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<Job, Done>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::string last_error_ ABSL_GUARDED_BY(mutex_);
  int64_t last_saved_env_steps_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace troupe::run
