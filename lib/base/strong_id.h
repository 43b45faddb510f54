#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace troupe::base {

/// An identifier that does not mix with other identifiers. `Tag` makes the type; `T` is what it wraps
/// (an integer or std::string). Immutable value; thread-compatible.
template <typename Tag, typename T>
class StrongId {
 public:
  using ValueType = T;

  StrongId() = default;
  constexpr explicit StrongId(T value) : value_(std::move(value)) {}

  [[nodiscard]] constexpr const T& value() const { return value_; }

  friend constexpr bool operator==(const StrongId& a, const StrongId& b) { return a.value_ == b.value_; }
  friend constexpr bool operator!=(const StrongId& a, const StrongId& b) { return !(a == b); }
  friend constexpr bool operator<(const StrongId& a, const StrongId& b) { return a.value_ < b.value_; }
  friend std::ostream& operator<<(std::ostream& os, const StrongId& id) { return os << id.value_; }
  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  T value_{};
};

}  // namespace troupe::base
