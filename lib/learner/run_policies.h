#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/learner/assembler.h"
#include "lib/learner/episode_book.h"
#include "lib/learner/learner_config.h"
#include "lib/learner/run_state.h"
#include "lib/learner/trainer.h"
#include "lib/policy/learn_group.h"
#include "lib/policy/policy_table.h"

namespace troupe::learner {

/// The policies of a run and their learn groups, wherever they are known: in the trainer, at the publisher, in the
/// assembler, in the view that workers' fragments are checked by, and in the books. Publishes versions, changes the
/// table, saves and restores. Made and owned by UpdateCycle; confined to the update thread.
///
/// Invariants: 1. RunState's view, plan and books follow one table, changed in one critical section. 2. A policy is in
/// the trainer before the view has it, and until the view has it no longer. 3. Between Steps the groups are the
/// trainer's.
class RunPolicies {
 public:
  /// All of it outlives this.
  RunPolicies(const LearnerDeps* deps, RunState* run, Assembler* assembler, EpisodeBook* episodes);

  policy::PolicyTablePtr table() const { return run_.View()->table; }

  /// Of a saved run: what policies and groups have. INVALID_ARGUMENT for policies or groups that do not fit, NOT_FOUND
  /// for a group that there is not.
  absl::Status Restore(const LearnerState& state);
  /// What a checkpoint says of policies and groups.
  absl::Status Save(LearnerState* state);

  /// Publishes version `n` of the policies that `reports` says were trained, or, with nullptr, all there is, stamped
  /// anew; then announces the version as a whole.
  absl::Status PublishVersion(int64_t n, const std::vector<PolicyUpdateReport>* reports);
  /// Learner's.
  absl::Status ChangePolicies(const policy::PolicyTablePtr& next, TableChange change);
  const policy::BySlot<policy::PolicyId>& trained_as() const { return trained_as_; }
  /// Frees the slots of removed policies of which no rows can come any more.
  void ReleaseDrained();

 private:
  /// The policy's weights as version (learner epoch, n), which they must have unless `stamp`.
  absl::StatusOr<policy::WeightSnapshotPtr> VersionOf(policy::PolicySlot slot, int64_t n, bool stamp);
  /// Adds the policies to the trainer, all or none; their first weights, nullptr for a class without.
  absl::StatusOr<std::vector<policy::WeightSnapshotPtr>> AddToTrainer(const policy::PolicyTable& next,
                                                                      std::vector<NewPolicy> added, int64_t version);
  /// Removed policies of which no rows can come any more.
  std::vector<policy::PolicySlot> DrainedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(run_.mutex);
  /// The trainer has the policies of `table` now: so has the assembler, and what groups want of it.
  void FollowTrainer(const policy::PolicyTable& table);

  const LearnerConfig& config_;
  const LearnerDeps& deps_;
  RunState& run_;
  Assembler& assembler_;
  EpisodeBook& episodes_;
  policy::BySlot<policy::PolicyId> trained_as_;  ///< see LearnerState
  std::vector<policy::LearnGroup> groups_;
};

}  // namespace troupe::learner
