#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/learner/trainer.h"
#include "lib/policy/policy_spec.h"
#include "lib/policy/state_block.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/core/schedule.h"
#include "lib/training/core/training_memory.h"

namespace troupe::training {

/// A policy of a group, resident for an update.
struct MemberAtWork {
  policy::PolicySlot slot;
  const policy::PolicySpec& spec;
  ResidentPolicy& resident;
};

/// One update of a group.
struct GroupUpdate {
  std::vector<MemberAtWork> members;                      ///< all of the group, ascending
  std::vector<const learner::PolicyTrainBatch*> batches;  ///< those of the batch that train, in its order; not empty
  const learner::TrainBatch& batch;                       ///< all of it
  const learner::UpdateContext& context;
  int thread;              ///< as NetworkBackend::Begin has it
  TrainingMemory& memory;  ///< of the thread that calls

  /// The member that `batch`, one of `batches`, is of.
  const MemberAtWork& MemberOf(const learner::PolicyTrainBatch& of) const {
    for (const MemberAtWork& member : members) {
      if (member.slot == of.policy) return member;
    }
    return members.front();
  }
};

/// What an algorithm's folder implements: the update of one learn group, and what of it belongs to no policy. Made by
/// Algorithm::MakeGroup, owned by the TrainerHost; used by one thread at a time. What lives on is in the members'
/// ResidentPolicy and in Export. Nothing else may be remembered from update to update but what belongs to episodes in
/// progress, which a restart begins anew (critic states, ADR 32), and that only from Commit on.
class GroupTrainer {
 public:
  virtual ~GroupTrainer() = default;

  /// Rows of a minibatch when a batch has `rows` of this group: from it follows whether a thread does all of an update.
  virtual int64_t MinibatchRows(int64_t rows) const = 0;
  /// Trains from the batches; one report for each of them, in their order. INVALID_ARGUMENT for a batch that does not
  /// fit its policy; else what a back end says. After an error the host restores members and group as they were.
  virtual absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const GroupUpdate& update) = 0;

  /// WeightSnapshot::exploration of the member's weights, which workers have from `now` on: after an update, or where a
  /// run begins or goes on.
  virtual std::map<std::string, double, std::less<>> Exploration(policy::PolicySlot /*member*/,
                                                                 const ScheduleTime& /*now*/) const {
    return {};
  }

  /// The update that Update was a part of has succeeded as a whole: what it made for the next one holds.
  virtual void Commit() {}

  /// Goes on where `before`, which trained the same group with other options, ends: takes what Commit made.
  virtual void Follow(GroupTrainer& /*before*/) {}

  /// What the group keeps beside its policies (a mixer, its target, a joint optimizer); empty: nothing. And back:
  /// INVALID_ARGUMENT, with nothing changed, for blocks that do not fit.
  virtual std::vector<policy::StateBlock> Export() const { return {}; }
  virtual absl::Status Import(const std::vector<policy::StateBlock>& blocks);
};

/// After an update: adds the observations and states of its batch to the policy's moments. Not before, because the
/// batch's log-probabilities were made with those of the snapshot that acted; the new ones are published with the new
/// weights.
void MergeObserved(const policy::PolicySpec& spec, const PreparedBatch& prepared, ResidentPolicy* resident);
/// Counts an update of so many steps `taken` and `skipped` for a loss or gradient that is not finite, and logs it.
/// `partly_skipped` counts those with both.
void BookSkips(const policy::PolicySpec& spec, int64_t taken, int64_t skipped, ResidentPolicy* resident,
               int64_t* partly_skipped);

}  // namespace troupe::training
