#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "lib/envs/mpe/world.h"

namespace troupe::envs {

/// Puts things in order of their distance, nearest first, equal ones by index. `order` holds every index once.
void SortByDistance(const double* distances, absl::Span<size_t> order);
/// The same, quick when `order` was right a moment ago and things have moved little: O(n) then, O(n^2) at worst.
void MendOrder(const double* distances, absl::Span<size_t> order);

/// Puts few distances in order, nearest first, equal ones as they came. Not thread-safe; no allocation after
/// construction.
class NearestOrder {
 public:
  explicit NearestOrder(size_t capacity);

  /// Indices of the nearest min(limit, count) of `count` distances, at most the capacity. Valid until the next call.
  absl::Span<const size_t> Sort(const double* distances, size_t count, size_t limit);

 private:
  std::vector<size_t> order_;
  std::vector<size_t> rank_;
};

/// Which other entities an agent observes: all of them in order, or with a limit the nearest, nearest first (mpe2's
/// partial observability). Not thread-safe; no allocation after construction.
class Neighbours {
 public:
  /// `limit` -1: all. `capacity`: of how many entities at most.
  Neighbours(int limit, size_t capacity);

  /// How many rows an observation has for `others` entities: missing ones are zeros.
  static size_t Slots(int limit, size_t others) { return limit < 0 ? others : static_cast<size_t>(limit); }

  bool all() const { return limit_ < 0; }
  size_t slots(size_t others) const { return Slots(limit_, others); }
  /// Of the entities [first, first + count) without `self`. Valid until the next call.
  absl::Span<const size_t> Find(const World& world, size_t self, size_t first, size_t count);

 private:
  const int limit_;
  std::vector<size_t> entities_;
  std::vector<size_t> chosen_;
  std::vector<double> distances_;
  NearestOrder order_;
};

}  // namespace troupe::envs
