#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/learner/checkpoint.h"
#include "lib/sample/grant.h"

namespace troupe::learner {

/// Rows of one policy in a fragment or batch.
struct PolicyRowCount {
  int32_t policy = 0;  ///< policy slot; -1: of none that there is now
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

/// Books what becomes of every (fragment, policy): one disposition at arrival, and for an accepted one later either
/// trained or dropped. Counts rows for the run and per policy (this epoch), and fragments. Not thread-safe.
class Accounting {
 public:
  explicit Accounting(int32_t num_policies);

  /// Takes the counters of a checkpoint over. What was queued then is gone: rolled back.
  void Restore(const RowCounters& saved);

  void BookArrival(sample::Disposition disposition, absl::Span<const PolicyRowCount> rows);
  /// Rows of the same fragment with a fate of their own.
  void BookRows(sample::Disposition disposition, absl::Span<const PolicyRowCount> rows);
  /// A fragment that could not be read: INVALID, of unknown rows.
  void BookUndecodable();
  /// Queued rows that were trained on, or found too old at assembly.
  void BookTrained(absl::Span<const PolicyRowCount> rows);
  void BookDropped(absl::Span<const PolicyRowCount> rows);
  /// A gap in a worker's sequence: after a restart rolled back, otherwise unknown.
  void BookGap(uint64_t fragments, bool restarted);

  /// Slots from now on. Those that are gone have no rows queued.
  void SetNumPolicies(int32_t num_policies) { per_policy_.resize(static_cast<size_t>(num_policies)); }
  /// The slot is free: what is counted there next is of another policy. It has no rows queued.
  void Forget(int32_t policy) { per_policy_[static_cast<size_t>(policy)] = {}; }

  const RowCounters& totals() const { return totals_; }
  /// Of this learner epoch alone. Policy slots are checked by the caller.
  const RowCounters& of_policy(int32_t policy) const { return per_policy_[policy]; }
  const FragmentCounters& fragments() const { return fragments_; }

 private:
  template <typename Change>
  void ForEach(absl::Span<const PolicyRowCount> rows, Change change);

  RowCounters totals_;
  std::vector<RowCounters> per_policy_;
  FragmentCounters fragments_;
};

/// RowCounters' two equations, and that nothing is negative. INTERNAL names the one that does not hold.
absl::Status CheckConservation(const RowCounters& rows);

}  // namespace troupe::learner
