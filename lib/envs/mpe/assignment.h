#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace troupe::envs {

/// The cheapest one-to-one assignment of n rows to n columns, by shortest augmenting paths with dual variables (Crouse,
/// "On implementing 2D rectangular assignment algorithms", 2016), O(n^3). Not thread-safe; no allocation after
/// construction.
class Assignment {
 public:
  explicit Assignment(size_t n);

  /// `cost` is [n, n], row-major and finite. The column of each row; valid until the next call. Among equally good
  /// ones it chooses as scipy's linear_sum_assignment does.
  absl::Span<const size_t> Solve(const double* cost);

 private:
  /// Finds the cheapest path from an unassigned row to an unassigned column and gives that column.
  size_t ShortestPath(const double* cost, size_t row);
  void AdjustPrices(size_t row);

  static constexpr size_t kNone = static_cast<size_t>(-1);

  const size_t n_;
  std::vector<double> row_price_, column_price_;
  std::vector<size_t> column_of_row_, row_of_column_;
  // Of the search for one path.
  double path_cost_ = 0;
  std::vector<double> reach_cost_;    ///< of every column: the cheapest way to it so far
  std::vector<size_t> predecessor_;   ///< of every column: the row before it on that way
  std::vector<size_t> open_columns_;  ///< not settled yet, the first `open_` of them
  std::vector<size_t> settled_;       ///< columns, in order
  std::vector<size_t> visited_rows_;  ///< in order, the first one unassigned
};

}  // namespace troupe::envs
