#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/learner/accounting.h"
#include "lib/learner/row_ages.h"
#include "lib/policy/ids.h"

namespace troupe::learner {

/// Counts the rows of one batch by policy, as the assembler keeps or drops them. Not thread-safe.
class RowTally {
 public:
  explicit RowTally(size_t num_policies)
      : kept_(num_policies), waited_(num_policies), aged_(num_policies), replaced_(num_policies) {}

  /// `lag`: the batch's iteration minus the version that the rows were made with.
  void Keep(policy::PolicySlot policy, int64_t rows, int64_t lag) {
    kept_[policy] += rows;
    lag_sum_ += static_cast<double>(lag) * static_cast<double>(rows);
    all_kept_ += rows;
  }
  /// Kept rows that may be older than others, since they waited for their outcome. `lag` >= 1.
  void Wait(policy::PolicySlot policy, int64_t rows, int64_t lag) {
    waited_[policy] += rows;
    waited_ages_.Add(lag, rows);
  }
  /// Rows that are too old.
  void Age(policy::PolicySlot policy, int64_t rows) { aged_[policy] += rows; }
  /// Rows of a policy that was replaced.
  void Replace(policy::PolicySlot policy, int64_t rows) { replaced_[policy] += rows; }

  /// By ascending policy; without those that have no rows.
  std::vector<PolicyRowCount> kept() const { return Counts(kept_); }
  std::vector<PolicyRowCount> waited() const { return Counts(waited_); }
  const RowAges& waited_ages() const { return waited_ages_; }
  std::vector<PolicyRowCount> aged() const { return Counts(aged_); }
  std::vector<PolicyRowCount> replaced() const { return Counts(replaced_); }
  /// Of the kept rows; 0 where there are none.
  double mean_lag() const { return all_kept_ == 0 ? 0 : lag_sum_ / static_cast<double>(all_kept_); }

 private:
  static std::vector<PolicyRowCount> Counts(const policy::BySlot<int64_t>& rows) {
    std::vector<PolicyRowCount> counts;
    for (const policy::PolicySlot slot : rows.ids()) {
      if (rows[slot] > 0) counts.push_back({slot, rows[slot]});
    }
    return counts;
  }

  policy::BySlot<int64_t> kept_;
  policy::BySlot<int64_t> waited_;
  policy::BySlot<int64_t> aged_;
  policy::BySlot<int64_t> replaced_;
  RowAges waited_ages_;
  double lag_sum_ = 0;
  int64_t all_kept_ = 0;
};

}  // namespace troupe::learner
