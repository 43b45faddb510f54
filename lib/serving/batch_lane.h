#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"

namespace troupe::serving {

/// Work that waits in a BatchLane: it lives until it is taken by Next or Remove.
class BatchWork {
 public:
  virtual ~BatchWork() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t bytes() const = 0;  ///< of memory that it holds
};

/// What waits in all lanes of an engine together. Thread-safe.
class BatchBudget {
 public:
  struct Limits {
    int64_t count = 1024;
    int64_t bytes = int64_t{32} << 20;
  };
  explicit BatchBudget(const Limits& limits) : limits_(limits) {}

  /// RESOURCE_EXHAUSTED above a limit: nothing is taken then.
  absl::Status Take(int64_t bytes);
  void GiveBack(int64_t bytes);
  int64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  const Limits limits_;
  std::atomic<int64_t> count_{0}, bytes_{0};  ///< relaxed: numbers, they order nothing
};

/// What wants one policy's actor, and who computes for it: adaptive batching. Who comes to an idle lane leads it: it
/// takes what waits, computes it, and takes again, until nothing waits. So an idle policy is asked at once and on the
/// caller's thread, and at a busy one a batch is what has queued meanwhile: a query waits for the batch in hand, and is
/// in the next one unless that has kMaxBatchRows before it. Each lane has a leader of its own; who asks two policies at
/// once may lead both, and computes them in turn.
///
/// Made and owned by a ServedPolicy. Thread-safe; never blocks, starts no thread. States: idle -> led (Enter) -> idle
/// (Next gives nothing). Capacity: the engine's BatchBudget; what is one too many is refused.
class BatchLane {
 public:
  static constexpr int64_t kMaxBatchRows = 1024;

  explicit BatchLane(BatchBudget* budget) : budget_(*budget) {}
  BatchLane(const BatchLane&) = delete;
  BatchLane& operator=(const BatchLane&) = delete;

  /// True: the lane was idle, and the caller leads it now with work of its own in hand, then calls Next until that
  /// gives nothing. False: somebody leads.
  bool TryLead();
  /// True: the caller leads now, and calls Next until that gives nothing; the first batch has `work`. False: the leader
  /// will compute it. RESOURCE_EXHAUSTED: it does not wait, see BatchBudget.
  absl::StatusOr<bool> Enter(BatchWork* work);
  /// For the leader: the next batch, in the order in which it came, replaces `batch`: as much as has at most
  /// kMaxBatchRows together, at least one. Nothing: the caller leads no more.
  void Next(std::vector<BatchWork*>* batch);
  /// Takes back what waits; false for what was taken.
  bool Remove(const BatchWork* work);

 private:
  BatchBudget& budget_;
  base::Mutex mutex_;
  bool led_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<BatchWork*> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::serving
