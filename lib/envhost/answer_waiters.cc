#include "lib/envhost/answer_waiters.h"

#include <algorithm>
#include <optional>

#include "lib/envhost/shared_memory.h"

namespace troupe::envhost {

void AnswerWaiters::Add(uint32_t target) {
  targets_.push_back(target);
  Renew();
}

void AnswerWaiters::Remove(uint32_t target) {
  targets_.erase(std::find(targets_.begin(), targets_.end(), target));
  Renew();
}

void AnswerWaiters::Renew() {
  bool passed = false;
  while (true) {
    const uint32_t done = page_.done.load(std::memory_order_seq_cst);
    std::optional<uint32_t> first;
    passed = false;
    for (const uint32_t target : targets_) {
      if (AtOrAfter(done, target)) {
        passed = true;
      } else if (!first.has_value() || AtOrAfter(*first, target)) {
        first = target;
      }
    }
    if (!first.has_value()) {
      page_.waits.store(0, std::memory_order_relaxed);
      break;
    }
    page_.wake_at.store(*first, std::memory_order_seq_cst);
    page_.waits.store(1, std::memory_order_seq_cst);
    // The child says how much is done and then looks at wake_at: either it has seen this one, or we see that here.
    if (!AtOrAfter(page_.done.load(std::memory_order_seq_cst), *first)) break;
  }
  // For their numbers the child may have looked at a wake_at that is another's.
  if (passed) FutexWake(page_.done);
}

}  // namespace troupe::envhost
