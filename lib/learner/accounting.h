#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/learner/checkpoint.h"
#include "lib/policy/ids.h"
#include "lib/policy/learn_group.h"
#include "lib/sample/grant.h"

namespace troupe::learner {

/// Rows of one policy in a fragment or batch.
struct PolicyRowCount {
  policy::PolicySlot policy;  ///< kNoPolicy: of none that there is now
  int64_t rows = 0;
};

/// Fragments by their fate, in this learner epoch.
struct FragmentCounters {
  int64_t received = 0;  ///< = accepted + duplicate + stale + invalid
  int64_t accepted = 0;
  int64_t duplicate = 0;
  int64_t stale = 0;
  int64_t invalid = 0;      ///< also those that could not be decoded (they count no rows)
  int64_t rolled_back = 0;  ///< acknowledged by an earlier learner epoch after the checkpoint this one started from
  int64_t unknown = 0;      ///< sequence numbers that a worker skipped and nobody can tell of
};

/// What became of the accepted rows of one learn group, in this learner epoch. A row has one fate, and is used as often
/// as a batch has it. accepted = trained + queued + aged + evicted; uses >= trained.
struct GroupRows {
  /// Empty: of policies that no group trains (frozen, scripted), and of groups that are gone.
  policy::GroupId id;
  int64_t accepted = 0;
  int64_t queued = 0;   ///< kept by the group's source, never trained on
  int64_t trained = 0;  ///< once or more often
  int64_t aged = 0;     ///< found too old at assembly, before they were trained on
  int64_t evicted = 0;  ///< let go before they were trained on: of a replaced policy, or of a batch that was given up
  int64_t uses = 0;     ///< rows of batches that were trained on, each time

  bool operator==(const GroupRows& other) const = default;
};

/// The books of a run at one moment: every accepted row of this learner epoch is in one group's.
struct RowBooks {
  RowCounters totals;             ///< of the run
  RowCounters earlier;            ///< of the learner epochs before this one
  std::vector<GroupRows> groups;  ///< ascending id
  GroupRows groupless;            ///< of no group
};

/// What a batch means for the rows of one policy.
struct BatchFate {
  policy::PolicySlot policy;
  int64_t trained = 0;  ///< for the first time
  int64_t waited = 0;   ///< of `trained`
  int64_t aged = 0;
  int64_t evicted = 0;
  int64_t uses = 0;
};

/// Books what becomes of every (fragment, policy): one disposition at arrival, and for an accepted row later one fate.
/// Counts rows for the run, per policy and per learn group (this epoch), and fragments. Not thread-safe.
class Accounting {
 public:
  explicit Accounting(int32_t num_policies);
  Accounting(const Accounting&) = delete;
  Accounting& operator=(const Accounting&) = delete;

  /// Takes the counters of a checkpoint over. What was queued then is gone: rolled back.
  void Restore(const RowCounters& saved);

  void BookArrival(sample::Disposition disposition, absl::Span<const PolicyRowCount> rows);
  /// Rows of the same fragment with a fate of their own.
  void BookRows(sample::Disposition disposition, absl::Span<const PolicyRowCount> rows);
  /// A fragment that could not be read: INVALID, of unknown rows.
  void BookUndecodable();
  /// A batch was trained on.
  void BookBatch(absl::Span<const BatchFate> fates);
  /// It was given up: what it had for the first time is evicted, and nothing was used.
  void BookGivenUp(absl::Span<const BatchFate> fates);
  /// Queued rows that were let go outside of a batch.
  void BookEvicted(absl::Span<const PolicyRowCount> rows);
  /// A gap in a worker's sequence: after a restart rolled back, otherwise unknown.
  void BookGap(uint64_t fragments, bool restarted);

  /// Slots from now on, and the group that each is in; nullopt: in none. Slots that are gone have no rows queued. What
  /// waits of a slot that is in another group than before is the new one's; a group that is gone is counted on among
  /// those of none.
  void SetGroups(const policy::GroupOfSlot& group_of);
  /// The slot is free: what is counted there next is of another policy. It has no rows queued.
  void Forget(policy::PolicySlot policy) { per_policy_[policy] = {}; }

  const RowCounters& totals() const { return totals_; }
  /// Of this learner epoch alone; of a slot that there is.
  const RowCounters& of_policy(policy::PolicySlot policy) const { return per_policy_[policy]; }
  const FragmentCounters& fragments() const { return fragments_; }
  /// nullptr: none trains it, or there is no such slot.
  const policy::GroupId* FindGroup(policy::PolicySlot policy) const;
  RowBooks Books() const;

 private:
  template <typename Change>
  void ForEach(absl::Span<const PolicyRowCount> rows, Change change);
  /// The rows of who trains `policy`. Rows of a slot that there is not are of none.
  GroupRows& GroupOf(policy::PolicySlot policy) { return rows_of_.Contains(policy) ? *rows_of_[policy] : groupless_; }

  RowCounters totals_;
  RowCounters earlier_;
  policy::BySlot<RowCounters> per_policy_;
  policy::GroupOfSlot group_of_;  ///< of the same slots
  std::map<policy::GroupId, GroupRows> groups_;
  GroupRows groupless_;
  policy::BySlot<GroupRows*> rows_of_;  ///< of the same slots: found once, not by name for each row count
  FragmentCounters fragments_;
};

/// RowCounters' two equations, and that nothing is negative. INTERNAL names the one that does not hold.
absl::Status CheckConservation(const RowCounters& rows);
/// GroupRows' equation, that no row was trained more often than used, and that nothing is negative.
absl::Status CheckConservation(const GroupRows& rows);
/// All of them, and that the groups, those of none and the earlier epochs add up to the totals.
absl::Status CheckConservation(const RowBooks& books);

}  // namespace troupe::learner
