#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace troupe::training {

/// What an epoch shuffles and cuts into minibatches, of a policy that does not remember.
enum class MinibatchBy : uint8_t {
  kRows = 1,      ///< rows, each by itself
  kEnvSteps = 2,  ///< RowUnits
};
inline constexpr std::array<std::pair<MinibatchBy, const char*>, 2> kMinibatchByNames = {
    {{MinibatchBy::kRows, "rows"}, {MinibatchBy::kEnvSteps, "env_steps"}}};

/// Rows of a batch that stay together in minibatches: a unit is those that read one input of the critic, so that it is
/// computed once for all of them. Where that is a joint observation or a state, it is the rows of an env step.
///
/// Units ascend by their first row, and so do the rows in each. Owned by a PreparedBatch, reused from batch to batch.
class RowUnits {
 public:
  /// Of `rows`, ascending. Row r reads input_of[r], which is at least 0 and less than `inputs`. Where each row has an
  /// input of its own there are no units: rows by themselves are the same.
  void Take(absl::Span<const int32_t> rows, absl::Span<const int32_t> input_of, int64_t inputs);
  void Clear();

  bool empty() const { return rows_.empty(); }
  int64_t size() const { return static_cast<int64_t>(first_.size()) - 1; }
  absl::Span<const int32_t> RowsOf(int64_t unit) const {
    const auto at = static_cast<size_t>(unit);
    return absl::MakeConstSpan(rows_).subspan(static_cast<size_t>(first_[at]),
                                              static_cast<size_t>(first_[at + 1] - first_[at]));
  }

 private:
  std::vector<int32_t> rows_;         // unit after unit
  std::vector<int32_t> first_ = {0};  // by unit, where its rows begin, and the end
  std::vector<int32_t> unit_of_;      // by input
};

}  // namespace troupe::training
