#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/learner/accounting.h"
#include "lib/learner/checked_fragment.h"
#include "lib/learner/grant_scheduler.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/sequence_tracker.h"
#include "lib/sample/grant.h"

namespace troupe::learner {

/// Gives every fragment its disposition and holds the accepted ones until their iteration is taken, within a budget of
/// bytes. Not thread-safe: the learner's mutex makes each Offer the one critical section that stores a fragment, moves
/// the watermark and books the rows.
class Ingest {
 public:
  /// Scheduler and accounting must outlive it.
  Ingest(int64_t budget_bytes, GrantScheduler* scheduler, Accounting* accounting);

  /// INVALID_ARGUMENT unless the budget holds (1 + max_policy_lag) train batches and one fragment a worker.
  static absl::Status CheckBudget(const LearnerOptions& options, const sample::BatchSchema& schema,
                                  const sample::BatchLimits& limits);

  /// Judges one fragment of a live worker. Errors give no disposition and count nothing: RESOURCE_EXHAUSTED the budget
  /// is used up, offer it again later; INVALID_ARGUMENT a sequence number that no honest worker sends.
  absl::StatusOr<sample::FragmentAck> Offer(sample::WorkerId worker, SequenceTracker& sequences, uint64_t sequence,
                                            CheckedFragment fragment);
  /// The same for bytes that could not be decoded: INVALID, or DUPLICATE. The worker's grants expire, since nobody
  /// knows to which one it belonged.
  absl::StatusOr<sample::FragmentAck> OfferUndecodable(sample::WorkerId worker, SequenceTracker& sequences,
                                                       uint64_t sequence, const std::string& reason);

  /// The fragments of an iteration, in order of arrival. Their bytes stay charged until Release.
  std::vector<CheckedFragment> Take(int64_t iteration);
  void Release(const std::vector<CheckedFragment>& taken);
  /// Whether a fragment that waits has rows of the policy.
  bool Holds(policy::PolicySlot policy) const;

  int64_t held_bytes() const { return held_bytes_; }
  int64_t budget_bytes() const { return budget_bytes_; }
  /// RESOURCE_EXHAUSTED once a fragment was refused for the budget although nothing is there to be trained: the open
  /// iteration alone is over the budget, so nothing will ever move again.
  const absl::Status& stuck() const { return stuck_; }

 private:
  absl::Status CheckSequence(const SequenceTracker& sequences, uint64_t sequence) const;

  const int64_t budget_bytes_;
  GrantScheduler* const scheduler_;
  Accounting* const accounting_;
  std::map<int64_t, std::vector<CheckedFragment>> held_;  ///< by iteration
  int64_t held_bytes_ = 0;
  int64_t taken_bytes_ = 0;  ///< of held_bytes_, taken and not released
  absl::Status stuck_;
};

}  // namespace troupe::learner
