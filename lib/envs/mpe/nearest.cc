#include "lib/envs/mpe/nearest.h"

#include <algorithm>
#include <numeric>

namespace troupe::envs {
namespace {

constexpr size_t kFew = 24;  // up to here counting who is nearer beats sorting: it has no branches to guess

/// Whether thing `a` comes before thing `b`.
bool Before(const double* distances, size_t a, size_t b) {
  return distances[a] < distances[b] || (distances[a] == distances[b] && a < b);
}

}  // namespace

void SortByDistance(const double* distances, absl::Span<size_t> order) {
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return Before(distances, a, b); });
}

void MendOrder(const double* distances, absl::Span<size_t> order) {
  for (size_t i = 1; i < order.size(); ++i) {
    const size_t moved = order[i];
    size_t place = i;
    for (; place > 0 && Before(distances, moved, order[place - 1]); --place) order[place] = order[place - 1];
    order[place] = moved;
  }
}

NearestOrder::NearestOrder(size_t capacity) : order_(capacity), rank_(capacity) {}

absl::Span<const size_t> NearestOrder::Sort(const double* distances, size_t count, size_t limit) {
  const size_t wanted = std::min(count, limit);
  if (count <= kFew) {
    std::fill_n(rank_.begin(), count, size_t{0});
    for (size_t i = 1; i < count; ++i) {
      size_t before = 0;
      for (size_t j = 0; j < i; ++j) {
        const size_t first = distances[j] <= distances[i] ? 1 : 0;
        before += first;
        rank_[j] += 1 - first;
      }
      rank_[i] = before;
    }
    for (size_t i = 0; i < count; ++i) order_[rank_[i]] = i;
  } else {
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(count);
    std::iota(order_.begin(), end, size_t{0});
    std::partial_sort(
        order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(wanted), end,
        [&](size_t a, size_t b) { return distances[a] < distances[b] || (distances[a] == distances[b] && a < b); });
  }
  return absl::MakeConstSpan(order_.data(), wanted);
}

Neighbours::Neighbours(int limit, size_t capacity)
    : limit_(limit), entities_(capacity), chosen_(capacity), distances_(capacity), order_(capacity) {}

absl::Span<const size_t> Neighbours::Find(const World& world, size_t self, size_t first, size_t count) {
  size_t others = 0;
  for (size_t entity = first; entity < first + count; ++entity) {
    if (entity != self) entities_[others++] = entity;
  }
  if (all()) return absl::MakeConstSpan(entities_.data(), others);
  for (size_t i = 0; i < others; ++i) distances_[i] = world.Distance(entities_[i], self);
  size_t found = 0;
  for (const size_t i : order_.Sort(distances_.data(), others, static_cast<size_t>(limit_))) {
    chosen_[found++] = entities_[i];
  }
  return absl::MakeConstSpan(chosen_.data(), found);
}

}  // namespace troupe::envs
