#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/learner/accounting.h"
#include "lib/learner/batch_source.h"
#include "lib/learner/checked_fragment.h"
#include "lib/learner/learner_options.h"
#include "lib/learner/sampling_plan.h"
#include "lib/learner/sequence_tracker.h"
#include "lib/policy/learn_group.h"
#include "lib/sample/grant.h"

namespace troupe::learner {

/// A source, and whom it feeds.
struct Feed {
  std::unique_ptr<BatchSource> source;
  std::set<policy::GroupId> groups = {};  ///< none: it has all that no other has
};

/// Gives every fragment its disposition, hands the accepted ones to the batch sources, and books what becomes of their
/// rows: one critical section of RunState's mutex stores a fragment, moves the watermark and books the rows. A fragment
/// counts against the budget of bytes as long as a source keeps it or a selection has it. Not thread-safe.
///
/// A row's fate is that of the source which feeds its policy's group. Rows of policies in no group are trained on with
/// whichever batch has them first, and evicted when nobody has their fragment any longer.
class Ingest {
 public:
  /// Plan and accounting must outlive it. `feeds`: at least one, and one without groups at most; no group stands in
  /// two.
  Ingest(int64_t budget_bytes, SamplingPlan* plan, Accounting* accounting, std::vector<Feed> feeds);

  /// INVALID_ARGUMENT unless the budget holds (1 + max_ahead) train batches (GrantScheduler::Options) and one fragment
  /// a worker.
  static absl::Status CheckBudget(const LearnerOptions& options, const sample::BatchSchema& schema,
                                  const sample::BatchLimits& limits, int64_t max_ahead);

  /// Judges one fragment of a live worker. Errors give no disposition and count nothing: RESOURCE_EXHAUSTED the budget
  /// is used up, offer it again later; INVALID_ARGUMENT a sequence number that no honest worker sends.
  absl::StatusOr<sample::FragmentAck> Offer(sample::WorkerId worker, SequenceTracker& sequences, uint64_t sequence,
                                            CheckedFragment fragment);
  /// The same for bytes that could not be decoded: INVALID, or DUPLICATE. The worker's grants expire, since nobody
  /// knows to which one it belonged.
  absl::StatusOr<sample::FragmentAck> OfferUndecodable(sample::WorkerId worker, SequenceTracker& sequences,
                                                       uint64_t sequence, const std::string& reason);

  size_t num_feeds() const { return feeds_.size(); }
  /// Groups have come, or are gone: those that the feed has now.
  void SetGroups(size_t feed, std::set<policy::GroupId> groups) { feeds_[feed].groups = std::move(groups); }
  /// True where the feed trains the policy.
  bool Feeds(size_t feed, policy::PolicySlot policy) const;
  /// A feed whose next batch is ready, the first from `from` on, around; nullopt: none is.
  std::optional<size_t> FindReady(size_t from) const;
  /// Batches that all sources could give now.
  int64_t NumReady() const;
  /// The sources' least, for SamplingPlan::SetPublished. Between two batches.
  int64_t Done() const;
  /// Batches that a source could give now.
  int64_t NumReady(size_t feed) const { return feeds_[feed].source->NumReady(plan_->first_incomplete()); }
  /// What its next batch is made of. Only while one is ready. The bytes stay charged until Release.
  Selection Select(size_t feed);
  /// The selection has been copied: what nobody keeps is charged no longer; it is the caller's to destroy, without the
  /// lock. `aged`, `replaced`: rows that the assembler dropped, `waited`: of those that it kept (Assembly). What that
  /// means for the groups that the source feeds, and for rows of no group: to be booked once the batch has been trained
  /// on or given up.
  std::vector<BatchFate> Release(size_t feed, const Selection& selection, absl::Span<const PolicyRowCount> aged,
                                 absl::Span<const PolicyRowCount> replaced = {},
                                 absl::Span<const PolicyRowCount> waited = {});
  /// Fragments that sources let go of since the last call, to be destroyed without the lock.
  std::vector<KeptFragmentPtr> TakeLetGo();
  /// Whether a fragment that a source keeps has rows of the policy.
  bool Holds(policy::PolicySlot policy) const;

  int64_t held_bytes() const { return held_bytes_; }
  int64_t budget_bytes() const { return budget_bytes_; }
  /// RESOURCE_EXHAUSTED once a fragment was refused for the budget although nothing is there to be trained: the open
  /// iteration alone is over the budget, so nothing will ever move again.
  const absl::Status& stuck() const { return stuck_; }

 private:
  absl::Status CheckSequence(const SequenceTracker& sequences, uint64_t sequence) const;
  void Keep(KeptFragmentPtr fragment);
  /// One holder less; what nobody has is charged no longer.
  void LetGo(KeptFragment& fragment);
  /// Rows that were in no batch and never will be, as the source does not keep the fragment any longer; from now on
  /// they are counted.
  std::vector<PolicyRowCount> TakeUnused(size_t feed, KeptFragment& fragment);

  const int64_t budget_bytes_;
  SamplingPlan* const plan_;
  Accounting* const accounting_;
  std::vector<Feed> feeds_;
  std::vector<KeptFragmentPtr> let_go_;
  int64_t held_bytes_ = 0;
  int64_t selections_ = 0;  ///< selected and not released
  absl::Status stuck_;
};

}  // namespace troupe::learner
