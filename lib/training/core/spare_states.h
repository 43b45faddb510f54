#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "lib/policy/policy_state.h"

namespace troupe::training {

/// Memory of states that are not needed any more, for the next ones: an update copies what its policies were, and to
/// ask the heap for all of that each time costs more than the copies. Owned by a TrainerHost; not thread-safe.
/// Capacity: `max_bytes` of values, also of those that a state had before; what does not fit is freed.
class SpareStates {
 public:
  explicit SpareStates(int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// A state with anything in it, or an empty one.
  policy::PolicyState Take() {
    if (states_.empty()) return {};
    policy::PolicyState state = std::move(states_.back());
    states_.pop_back();
    bytes_ -= BytesHeld(state);
    return state;
  }
  void Give(policy::PolicyState state) {
    const int64_t bytes = BytesHeld(state);
    if (bytes_ + bytes > max_bytes_) return;
    bytes_ += bytes;
    states_.push_back(std::move(state));
  }

  size_t size() const { return states_.size(); }
  int64_t bytes() const { return bytes_; }

 private:
  static int64_t BytesHeld(const policy::PolicyState& state) {
    size_t bytes = 0;
    for (const policy::StateBlock& block : state.blocks) {
      bytes += std::visit([](const auto& values) { return values.capacity() * sizeof(values[0]); }, block.values);
    }
    return static_cast<int64_t>(bytes);
  }

  const int64_t max_bytes_;
  int64_t bytes_ = 0;
  std::vector<policy::PolicyState> states_;
};

}  // namespace troupe::training
