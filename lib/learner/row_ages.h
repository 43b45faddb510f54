#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::learner {

/// Rows by their age in versions, a histogram: of 1, 2 to 3, 4 to 7, ..., 64 and more. Plain value.
struct RowAges {
  static constexpr size_t kBuckets = 7;
  std::array<int64_t, kBuckets> rows = {};

  /// The youngest age of a bucket.
  static int64_t Youngest(size_t bucket) { return int64_t{1} << bucket; }

  /// `age` >= 1.
  void Add(int64_t age, int64_t count) {
    size_t bucket = 0;
    while (bucket + 1 < kBuckets && age >= Youngest(bucket + 1)) ++bucket;
    rows[bucket] += count;
  }
  void Add(const RowAges& other) {
    for (size_t bucket = 0; bucket < kBuckets; ++bucket) rows[bucket] += other.rows[bucket];
  }
  /// The youngest age and the rows of each bucket that has some.
  std::vector<std::pair<int64_t, int64_t>> Filled() const {
    std::vector<std::pair<int64_t, int64_t>> filled;
    for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
      if (rows[bucket] > 0) filled.emplace_back(Youngest(bucket), rows[bucket]);
    }
    return filled;
  }
  bool operator==(const RowAges& other) const = default;
};

}  // namespace troupe::learner
