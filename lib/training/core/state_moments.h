#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_state.h"

namespace troupe::training {

/// Running mean and variance of each column of what a centralized critic reads (PolicySpec::normalize_state). A column
/// has a count of its own: to that of a joint observation an agent that is absent adds nothing. Plain value.
struct ColumnMoments {
  std::vector<double> count;
  std::vector<double> mean;
  std::vector<double> variance;  ///< population variance

  bool operator==(const ColumnMoments& other) const = default;
};

/// Before any data: mean 0, variance 1, weight 0.
ColumnMoments InitialColumnMoments(int64_t columns);
/// `old` and `batch` together, as Merge of RunningMoments, column by column. A column that is not finite afterwards
/// stays as it was.
ColumnMoments Merge(ColumnMoments old, const ColumnMoments& batch, double max_count);

/// Of a state; without columns where it has none.
ColumnMoments StateMomentsOf(const policy::PolicyState& state);
/// Moments without columns take the blocks out.
void SetStateMoments(const ColumnMoments& moments, policy::PolicyState* state);
/// What a state has of them as blocks, for CheckKnownBlocks.
void AddStateMomentSpecs(const policy::PolicySpec& spec, std::vector<policy::BlockSpec>* known);

/// Makes of a joint observation or a global state what the critic reads: each element
/// clip((value - mean) / deviation, -10, 10). Presence bits of a joint observation stay as they are, and absent agents'
/// elements 0. Where the critic attends to agents, those of one observation space have the same moments, or their order
/// would matter. Thread-safe.
class StateNormalizer {
 public:
  /// `joint_sizes`: PolicyTrainBatch::joint_sizes of a joint observation of `columns` elements; empty for a state.
  /// `agents`: policy::AttentionSpec::agents of a critic that attends to them, else empty.
  StateNormalizer(const ColumnMoments& moments, absl::Span<const int64_t> joint_sizes, int64_t columns,
                  absl::Span<const int64_t> agents = {});

  /// In place: the first `columns` elements of a row.
  void Normalize(float* row) const;

  /// Of the rows of `states` that `index` names for one of the rows in `active`, each counted once: as they came,
  /// before any is normalized.
  ColumnMoments MomentsOf(const learner::RowMatrix& states, absl::Span<const int32_t> index,
                          absl::Span<const int32_t> active) const;

 private:
  /// Columns that are there together.
  struct Part {
    int64_t first = 0;
    int64_t size = 0;
    int64_t presence = -1;  ///< column of the bit; -1: always
  };

  bool IsThere(const Part& part, const float* row) const { return part.presence < 0 || row[part.presence] != 0.0f; }
  /// add(counted_in_, value) for each value that is there.
  template <typename Add>
  void ForValues(const float* row, Add&& add) const;

  const int64_t columns_;
  std::vector<size_t> counted_in_;  ///< by column, the one among those with the same moments that they are found in
  std::vector<Part> parts_;
  std::vector<float> mean_;
  std::vector<float> inverse_std_;
};

}  // namespace troupe::training
