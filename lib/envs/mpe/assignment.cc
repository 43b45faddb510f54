#include "lib/envs/mpe/assignment.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe::envs {

Assignment::Assignment(size_t n)
    : n_(n),
      row_price_(n),
      column_price_(n),
      column_of_row_(n),
      row_of_column_(n),
      reach_cost_(n),
      predecessor_(n),
      open_columns_(n) {
  settled_.reserve(n);
  visited_rows_.reserve(n);
}

absl::Span<const size_t> Assignment::Solve(const double* cost) {
  std::fill(row_price_.begin(), row_price_.end(), 0.0);
  std::fill(column_price_.begin(), column_price_.end(), 0.0);
  std::fill(column_of_row_.begin(), column_of_row_.end(), kNone);
  std::fill(row_of_column_.begin(), row_of_column_.end(), kNone);
  for (size_t row = 0; row < n_; ++row) {
    size_t column = ShortestPath(cost, row);
    AdjustPrices(row);
    // Along the path every row takes the column that it reached, back to the row that had none.
    for (size_t changed = kNone; changed != row;) {
      changed = predecessor_[column];
      row_of_column_[column] = changed;
      std::swap(column_of_row_[changed], column);
    }
  }
  return column_of_row_;
}

size_t Assignment::ShortestPath(const double* cost, size_t row) {
  path_cost_ = 0;
  std::fill(reach_cost_.begin(), reach_cost_.end(), std::numeric_limits<double>::infinity());
  // From the last column to the first: with that, equal costs give the identity.
  for (size_t i = 0; i < n_; ++i) open_columns_[i] = n_ - 1 - i;
  size_t open = n_;
  settled_.clear();
  visited_rows_.clear();
  while (true) {
    visited_rows_.push_back(row);
    size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < open; ++i) {
      const size_t column = open_columns_[i];
      const double reach = path_cost_ + cost[row * n_ + column] - row_price_[row] - column_price_[column];
      if (reach < reach_cost_[column]) {
        reach_cost_[column] = reach;
        predecessor_[column] = row;
      }
      // Among equals one that ends the path.
      if (reach_cost_[column] < least || (reach_cost_[column] == least && row_of_column_[column] == kNone)) {
        least = reach_cost_[column];
        best = i;
      }
    }
    path_cost_ = least;
    const size_t column = open_columns_[best];
    open_columns_[best] = open_columns_[--open];
    settled_.push_back(column);
    if (row_of_column_[column] == kNone) return column;
    row = row_of_column_[column];
  }
}

void Assignment::AdjustPrices(size_t row) {
  row_price_[row] += path_cost_;
  for (const size_t visited : visited_rows_) {
    if (visited != row) row_price_[visited] += path_cost_ - reach_cost_[column_of_row_[visited]];
  }
  for (const size_t column : settled_) column_price_[column] -= path_cost_ - reach_cost_[column];
}

}  // namespace troupe::envs
