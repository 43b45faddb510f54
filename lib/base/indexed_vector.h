#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "lib/base/check.h"

namespace troupe::base {

/// A vector that is indexed by an id (a StrongId of an integer, from 0 on) and by nothing else: a worker's number does
/// not find a policy. An index out of range is a broken invariant (checked). Thread-compatible, as std::vector.
template <typename Id, typename T>
class IndexedVector {
 public:
  IndexedVector() = default;
  explicit IndexedVector(size_t size) : values_(size) {}
  explicit IndexedVector(std::vector<T> values) : values_(std::move(values)) {}

  T& operator[](Id id) {
    TROUPE_CHECK(Contains(id));
    return values_[static_cast<size_t>(id.value())];
  }
  const T& operator[](Id id) const {
    TROUPE_CHECK(Contains(id));
    return values_[static_cast<size_t>(id.value())];
  }
  bool Contains(Id id) const { return id.value() >= 0 && static_cast<size_t>(id.value()) < values_.size(); }
  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  void resize(size_t size) { values_.resize(size); }
  /// By ascending id.
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  std::vector<T> values_;
};

}  // namespace troupe::base
