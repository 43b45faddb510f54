#include "lib/training/core/row_units.h"

namespace troupe::training {

void RowUnits::Clear() {
  rows_.clear();
  first_.assign(1, 0);
}

void RowUnits::Take(absl::Span<const int32_t> rows, absl::Span<const int32_t> input_of, int64_t inputs) {
  Clear();
  unit_of_.assign(static_cast<size_t>(inputs), -1);
  // first_[u + 1] counts the rows of unit u, then says where they end.
  for (const int32_t row : rows) {
    int32_t& unit = unit_of_[static_cast<size_t>(input_of[row])];
    if (unit < 0) {
      unit = static_cast<int32_t>(first_.size()) - 1;
      first_.push_back(0);
    }
    ++first_[static_cast<size_t>(unit) + 1];
  }
  if (size() == static_cast<int64_t>(rows.size())) return Clear();
  for (size_t unit = 1; unit < first_.size(); ++unit) first_[unit] += first_[unit - 1];
  rows_.resize(rows.size());
  std::vector<int32_t> next(first_.begin(), first_.end() - 1);
  for (const int32_t row : rows) {
    const int32_t unit = unit_of_[static_cast<size_t>(input_of[row])];
    rows_[static_cast<size_t>(next[static_cast<size_t>(unit)]++)] = row;
  }
}

}  // namespace troupe::training
