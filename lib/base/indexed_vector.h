#pragma once

#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "lib/base/check.h"

namespace troupe::base {

/// A vector that is indexed by an id (a StrongId of an integer, from 0 on) and by nothing else: a worker's number does
/// not find a policy. An index out of range is a broken invariant (checked). Thread-compatible, as std::vector.
template <typename Id, typename T>
class IndexedVector {
 public:
  /// The ids of `size` values, for a loop over them.
  class Ids {
   public:
    class Iterator {
     public:
      explicit Iterator(size_t place) : place_(place) {}
      Id operator*() const { return Id(static_cast<typename Id::ValueType>(place_)); }
      Iterator& operator++() {
        ++place_;
        return *this;
      }
      friend bool operator!=(const Iterator& a, const Iterator& b) { return a.place_ != b.place_; }

     private:
      size_t place_;
    };

    explicit Ids(size_t size) : size_(size) {}
    Iterator begin() const { return Iterator(0); }
    Iterator end() const { return Iterator(size_); }

   private:
    size_t size_;
  };

  IndexedVector() = default;
  explicit IndexedVector(size_t size) : values_(size) {}
  IndexedVector(size_t size, const T& value) : values_(size, value) {}
  explicit IndexedVector(std::vector<T> values) : values_(std::move(values)) {}
  /// In braces stand the values, as std::vector's: {3, 1} is two of them.
  IndexedVector(std::initializer_list<T> values) : values_(values) {}

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
  void resize(size_t size, const T& value) { values_.resize(size, value); }
  /// Grows, by `value`s, as far as it takes to have one of `id`, which is not below 0.
  void GrowTo(Id id) {
    TROUPE_CHECK(id.value() >= 0);
    if (!Contains(id)) values_.resize(static_cast<size_t>(id.value()) + 1);
  }
  void GrowTo(Id id, const T& value) {
    TROUPE_CHECK(id.value() >= 0);
    if (!Contains(id)) values_.resize(static_cast<size_t>(id.value()) + 1, value);
  }
  void clear() { values_.clear(); }
  void push_back(T value) { values_.push_back(std::move(value)); }
  void pop_back() { values_.pop_back(); }
  T& back() { return values_.back(); }
  const T& back() const { return values_.back(); }
  /// By ascending id.
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  /// Those that it has now, ascending.
  Ids ids() const { return Ids(values_.size()); }
  /// By ascending id, for who takes them all.
  const std::vector<T>& values() const& { return values_; }
  std::vector<T> values() && { return std::move(values_); }

 private:
  std::vector<T> values_;
};

}  // namespace troupe::base
