#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace troupe::base {

/// The one queue between threads: first in, first out, bounded by the sum of the weights of what it holds (bytes,
/// or 1 each for a count). An item heavier than the whole capacity is accepted only by an empty queue.
///
/// Thread-safe. TryPush never blocks; AwaitPush and AwaitPop block up to their timeout. States: open ->
/// closed; Close(kDrain) lets poppers take what is left, Close(kDrop) discards it. Items are destroyed outside the
/// lock.
template <typename T>
class BoundedQueue {
 public:
  enum class CloseMode {
    kDrain,  ///< what is queued can still be popped
    kDrop,   ///< what is queued is destroyed
  };

  explicit BoundedQueue(int64_t capacity) : capacity_(capacity) {}

  /// RESOURCE_EXHAUSTED when full, CANCELLED when closed; `item` is moved from only on OK.
  absl::Status TryPush(T&& item, int64_t weight = 1) {
    MutexLock lock(&mutex_);
    if (closed_) return absl::CancelledError("queue is closed");
    if (!FitsLocked(weight)) return FullErrorLocked(weight);
    PushLocked(std::move(item), weight);
    return absl::OkStatus();
  }

  /// Blocks until there is room. DEADLINE_EXCEEDED after `timeout`, CANCELLED when closed.
  absl::Status AwaitPush(T&& item, int64_t weight, absl::Duration timeout) {
    MutexLock lock(&mutex_);
    const absl::Time deadline = absl::Now() + timeout;
    while (!closed_ && !FitsLocked(weight)) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("queue stayed full");
      changed_.WaitFor(&mutex_, left);
    }
    if (closed_) return absl::CancelledError("queue is closed");
    PushLocked(std::move(item), weight);
    return absl::OkStatus();
  }

  /// The oldest item, or nullopt when there is none.
  std::optional<T> TryPop() {
    MutexLock lock(&mutex_);
    return PopLocked();
  }

  /// Blocks until there is an item; nullopt after `timeout` or when closed and empty.
  std::optional<T> AwaitPop(absl::Duration timeout) {
    MutexLock lock(&mutex_);
    const absl::Time deadline = absl::Now() + timeout;
    while (items_.empty() && !closed_) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(&mutex_, left);
    }
    return PopLocked();
  }

  void Close(CloseMode mode) {
    std::deque<Entry> dropped;
    MutexLock lock(&mutex_);
    closed_ = true;
    if (mode == CloseMode::kDrop) {
      dropped.swap(items_);  // destroyed after `lock` is released: declared before it
      weight_ = 0;
    }
    changed_.NotifyAll();
  }

  int64_t weight() const {
    MutexLock lock(&mutex_);
    return weight_;
  }
  int64_t size() const {
    MutexLock lock(&mutex_);
    return static_cast<int64_t>(items_.size());
  }
  int64_t capacity() const { return capacity_; }

 private:
  struct Entry {
    T item;
    int64_t weight;
  };

  bool FitsLocked(int64_t weight) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return items_.empty() || weight_ + weight <= capacity_;
  }
  absl::Status FullErrorLocked(int64_t weight) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("queue is full: holds ", weight_, " of ", capacity_, ", asked for ", weight));
  }
  void PushLocked(T&& item, int64_t weight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    items_.push_back(Entry{std::move(item), weight});
    weight_ += weight;
    changed_.NotifyAll();
  }
  std::optional<T> PopLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front().item));
    weight_ -= items_.front().weight;
    items_.pop_front();
    changed_.NotifyAll();
    return item;
  }

  const int64_t capacity_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Entry> items_ ABSL_GUARDED_BY(mutex_);
  int64_t weight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::base
