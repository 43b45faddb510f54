#pragma once

#include <cstdint>
#include <vector>

#include "lib/envhost/shared_layout.h"

namespace troupe::envhost {

/// Whether counter `a`, which wraps, is at or after `b`.
inline bool AtOrAfter(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) >= 0; }

/// Who of this process waits for answers, and what the child is told of it: to wake everybody once so many requests are
/// answered, which is the lowest number that is not reached yet. Waiters sleep on ControlPage::done, so that an answer
/// between a look and the sleep is never missed. Owned by HostProcess. Not thread-safe: under its lock, while the child
/// runs on.
class AnswerWaiters {
 public:
  explicit AnswerWaiters(ControlPage* page) : page_(*page) {}

  /// Somebody will sleep until `target` requests are answered.
  void Add(uint32_t target);
  void Remove(uint32_t target);
  /// For one who was woken too early, before it sleeps again: the child wakes once for a number, which may have been
  /// another's.
  void Renew();

 private:
  ControlPage& page_;
  std::vector<uint32_t> targets_;
};

}  // namespace troupe::envhost
