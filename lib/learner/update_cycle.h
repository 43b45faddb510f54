#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/learner/aging_watch.h"
#include "lib/learner/assembler.h"
#include "lib/learner/episode_book.h"
#include "lib/learner/learner_config.h"
#include "lib/learner/run_policies.h"
#include "lib/learner/run_state.h"

namespace troupe::learner {

/// A learner's half that trains: it selects a batch, assembles it, has it trained on, publishes what came of it and
/// books it; between two batches policies change and states are saved. What workers do is WorkerDesk's; what is due
/// between two Steps of a whole process is run::UpdateLoop's. Made and owned by Learner.
///
/// Thread-safety: none, it is the update thread's. Step blocks up to its timeout for samples and then for an update.
/// Trainer, publisher, sink and listener are called without RunState's lock. The methods are Learner's, which says what
/// they do.
class UpdateCycle {
 public:
  /// Both outlive it; deps are complete.
  UpdateCycle(const LearnerDeps* deps, RunState* run);

  absl::Status Restore(const LearnerState& state);
  absl::Status Start();
  StepOutcome Step(absl::Duration timeout);
  absl::Status ChangePolicies(const policy::PolicyTablePtr& next, TableChange change) {
    return policies_.ChangePolicies(next, std::move(change));
  }
  const policy::BySlot<policy::PolicyId>& trained_as() const { return policies_.trained_as(); }
  absl::StatusOr<LearnerSnapshot> SnapshotState();
  void ReportEvaluation(const EpisodeStats& evaluation);
  bool Judge(LearnerState* state) { return episodes_.Judge(*policies_.table(), state); }

 private:
  /// One batch on its way from the source to the books.
  struct Batch {
    size_t feed = 0;               ///< that it is of
    int64_t version = 0;           ///< of the weights that it trains
    int64_t env_steps_before = 0;  ///< of the run, before the newest iteration that it has rows of
    const Assembly* assembly = nullptr;
    std::vector<BatchFate> fates;
    ReportedEpisodes finished;
    absl::Duration assemble_begin, update_begin, update_end;
  };

  /// INVALID_ARGUMENT unless a checkpoint is of a run with the same feeds.
  absl::Status CheckFeeds(const LearnerState& state) const;
  /// Waits; an outcome when there is nothing to train on.
  std::optional<StepOutcome> AwaitBatch(absl::Duration timeout);
  std::optional<StepOutcome> EndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(run_.mutex);
  StepOutcome Train(Selection selection, Batch batch);
  /// Copies what was selected, and gives its memory back.
  void Assemble(Selection selection, Batch& batch);
  /// Asks who trains on the batch, where somebody is to be asked.
  void ChoosePolicies(const Batch& batch, int64_t updates);
  StepOutcome GiveUp(const Batch& batch, absl::Status status, bool state_is_whole);
  /// What there is to tell of an update, but for what is counted.
  ProgressRecord Describe(Batch* batch, std::vector<PolicyUpdateReport> reports);
  /// Counts it, and lets sampling go on.
  void Book(const Batch& batch, int64_t num_finished, ProgressRecord* record);

  const LearnerConfig& config_;
  const LearnerDeps& deps_;
  RunState& run_;
  Assembler assembler_;
  AgingWatch aging_;
  EpisodeBook episodes_;
  RunPolicies policies_;
  std::vector<FeedClock> clocks_;         ///< by feed
  size_t next_feed_ = 0;                  ///< that is asked first: each has its turn
  double wait_s_ = 0;                     ///< waited for samples since the last update
  std::vector<LaneState> retired_lanes_;  ///< of a restored run with more environments
};

}  // namespace troupe::learner
