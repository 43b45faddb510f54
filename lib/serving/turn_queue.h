#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "lib/base/mutex.h"

namespace troupe::serving {

/// Work that may take any time, in turns: the pieces of one key one after the other, and the keys with work one after
/// the other. So a key whose work hangs holds one of the threads that call Step, and no more.
///
/// Made and owned by a QueryEngine; the threads are its owner's: `while (queue.Await()) queue.Step();`. Thread-safe.
/// Await blocks, and Step as long as the work that it runs; nothing foreign runs under the lock.
/// Invariants: 1. at most one piece of a key runs at a time; 2. the pieces of a key run in the order in which they came
/// to it; 3. every piece is run until it is through, refused, or taken back by Remove.
/// Capacity: Limits, of what waits and what runs together; a piece that is one too many is refused, whatever the state
/// of other keys.
/// States: open -> closed (Close): what waits is refused, what runs is refused where it would wait again.
class TurnQueue {
 public:
  using Key = int32_t;
  struct Limits {
    int64_t count = 256;
    int64_t count_per_key = 32;
    int64_t bytes = int64_t{32} << 20;
    int64_t bytes_per_key = int64_t{8} << 20;
  };
  class Work {
   public:
    virtual ~Work() = default;
    /// Its part for the key whose turn it is; the key whose turn it needs next, none when it is through. May block.
    virtual std::optional<Key> Run() = 0;
    /// It is run no further. RESOURCE_EXHAUSTED: the key that it needs next has too much; CANCELLED: closed.
    virtual void Refuse(const absl::Status& why) = 0;
  };

  explicit TurnQueue(const Limits& limits) : limits_(limits) {}
  /// Nobody may be in Await or Step.
  ~TurnQueue() { Close(); }
  TurnQueue(const TurnQueue&) = delete;
  TurnQueue& operator=(const TurnQueue&) = delete;

  /// `bytes`: of memory that it holds until it is through. RESOURCE_EXHAUSTED or CANCELLED as Work::Refuse says, which
  /// is not called then.
  absl::Status Push(std::shared_ptr<Work> work, Key key, int64_t bytes);
  /// As Push, whatever the limits, which it does not count for: for the owner's own work.
  absl::Status PushUncounted(std::shared_ptr<Work> work, Key key);
  /// Takes back what waits; false for what runs or is not there.
  bool Remove(const Work* work);

  /// Blocks until somebody's turn has come; false once closed.
  bool Await();
  /// Runs one piece; false when it is nobody's turn.
  bool Step();
  void Close();

  /// Pieces that are counted: those that wait and those that run.
  int64_t count() const;

 private:
  struct Entry {
    std::shared_ptr<Work> work;
    int64_t bytes = 0;
    int64_t count = 0;  ///< 0: uncounted
  };
  struct Lane {
    std::deque<Entry> waiting;
    bool running = false;
    int64_t count = 0, bytes = 0;
  };

  /// Whether the key may have one more, and where `comes_in` the queue.
  absl::Status CheckLocked(Key key, const Entry& entry, bool comes_in) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitLocked(Key key, Entry entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The entry is the key's no more.
  void LeaveLocked(Key key, const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Limits limits_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0, bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Key, Lane> lanes_ ABSL_GUARDED_BY(mutex_);  ///< of keys that have something
  std::deque<Key> turns_ ABSL_GUARDED_BY(mutex_);      ///< keys that have something waiting and nothing running
};

}  // namespace troupe::serving
