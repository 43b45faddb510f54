#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/learner/feed.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/policy/learn_group.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::learner {

/// Where in the run an update stands; schedules and shuffles follow from it alone, so that a resumed run equals an
/// uninterrupted one.
struct UpdateContext {
  uint64_t seed = 0;
  int64_t iteration = 0;               ///< updates before this one
  int64_t env_steps = 0;               ///< trained env steps before this one
  policy::WeightVersion next_version;  ///< version that the updated weights get
};

/// Before the name of a number that a policy explores with (policy::WeightSnapshot::exploration): its tag in a report.
inline constexpr char kExplorationTag[] = "Policy/Exploration ";

/// What one update of one policy did.
struct PolicyUpdateReport {
  policy::PolicySlot policy;
  int64_t trained_rows = 0;     ///< active rows of the batch (each counted once, not once an epoch)
  int64_t minibatch_steps = 0;  ///< optimizer steps taken
  int64_t epochs = 0;           ///< begun; fewer than asked when target_kl stopped it
  double train_time_s = 0;      ///< from the batch to new weights; side by side with others where they train so
  int64_t skipped_steps = 0;    ///< minibatch steps refused for a non-finite loss or gradient
  std::vector<std::pair<std::string, double>> metrics;  ///< tag (docs/metrics.md, e.g. "Loss/Policy loss") and value
};

/// A policy that a change of the table brings.
struct NewPolicy {
  policy::PolicySlot slot;    ///< where the table has it
  policy::PolicyState state;  ///< what it starts with; the version is the learner's business
  policy::PolicySlot like;    ///< a policy of the run that it is trained as
};

/// How a policy trains after a change of the table.
struct NewAlgorithm {
  policy::PolicySlot slot;
  policy::AlgorithmSpec algorithm;
};

/// Comes with a table that follows from the one before by changes: one of the two, or nothing.
struct TableChange {
  std::vector<NewPolicy> added = {};                     ///< exactly the policies that it brings
  std::optional<NewAlgorithm> algorithm = std::nullopt;  ///< of a policy that was there
};

/// The learning algorithm behind the learner. Implemented in lib/training with LibTorch, by FakeTrainer in tests.
/// Used by the update thread only; may block as long as an update takes. Weights stay untouched by a failed update.
class Trainer {
 public:
  virtual ~Trainer() = default;

  /// One update from one train batch: values, advantages, epochs of minibatches. The context's next_version becomes the
  /// version of every policy.
  virtual absl::StatusOr<std::vector<PolicyUpdateReport>> Update(const TrainBatch& batch,
                                                                 const UpdateContext& context) = 0;
  /// Where the run stands, before its first update and first Snapshot: schedules go on from there. Not called: at 0.
  virtual void SetTime(int64_t /*env_steps*/, int64_t /*updates*/) {}
  /// The actor part as workers use it, with the policy's version. Only policies whose report has trained rows may have
  /// changed since the update before.
  virtual absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot policy) = 0;
  /// Everything, for a checkpoint (copied). And back: INVALID_ARGUMENT when it does not fit the policy.
  virtual absl::StatusOr<policy::PolicyState> ExportState(policy::PolicySlot policy) = 0;
  virtual absl::Status ImportState(const policy::PolicyState& state, policy::PolicySlot policy) = 0;
  /// A policy more, in a slot that is free: it begins with `state` and is trained as `like` is (options, schedules).
  /// INVALID_ARGUMENT for a spec or state that does not fit; on an error there is nothing in the slot.
  virtual absl::Status AddPolicy(policy::PolicySlot slot, const policy::PolicySpec& spec, policy::PolicyState state,
                                 policy::PolicySlot like) = 0;
  /// Trains the policy as `algorithm` says from the next update on. INVALID_ARGUMENT for options that it cannot work
  /// with; FAILED_PRECONDITION, with nothing changed, for those that its state has no place for, and for a policy that
  /// learns together with others.
  virtual absl::Status SetAlgorithm(policy::PolicySlot /*policy*/, const policy::AlgorithmSpec& /*algorithm*/) {
    return absl::FailedPreconditionError("the policies of this trainer train as they began");
  }
  /// Takes a policy out; its memory is free again, and so is its slot.
  virtual absl::Status RemovePolicy(policy::PolicySlot slot) = 0;
  /// The learn groups, ascending by their first member; each trained policy is in one. They follow AddPolicy and
  /// RemovePolicy. Empty: each policy is a group by itself and there is nothing to keep beside policies.
  virtual std::vector<policy::LearnGroup> Groups() const { return {}; }
  /// How groups are sampled and trained that do not take each iteration of the run once and whole; they follow the
  /// groups. Empty: all do.
  virtual std::vector<FeedSpec> Feeds() const { return {}; }
  /// What groups keep beside their policies, for a checkpoint; only those that keep something. And back: NOT_FOUND for
  /// a group that there is not, INVALID_ARGUMENT for blocks that do not fit it.
  virtual absl::StatusOr<std::vector<policy::GroupState>> ExportGroups() { return std::vector<policy::GroupState>(); }
  virtual absl::Status ImportGroup(const policy::GroupState& state) {
    return absl::NotFoundError("no learn group of this trainer keeps anything: got the state of '" + state.id.value() +
                               "'");
  }
  /// Of the trainer as a whole, by tag; reported with each update.
  virtual std::vector<std::pair<std::string, double>> Metrics() { return {}; }
};

}  // namespace troupe::learner
