#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/policy/ids.h"

namespace troupe::policy {

/// How much a map has done since it was made, and what it holds now.
struct PolicyMapStats {
  int64_t hits = 0;            ///< slots of batches that were resident at once
  int64_t misses = 0;          ///< slots that had to be loaded or waited for
  int64_t evictions = 0;       ///< values that left for another
  int64_t writes = 0;          ///< of changed values to the tier
  int64_t write_failures = 0;  ///< the value stayed
  int64_t load_failures = 0;
  absl::Duration load_time;  ///< summed over misses
  absl::Duration write_time;
  int64_t resident = 0;
  int64_t leaving = 0;         ///< out of the map, not yet written
  int64_t resident_bytes = 0;  ///< with those leaving
};

/// Where policies come from and go to: the next tier. For a learner, memory of the host and disk; for a worker or
/// server, the learner. Thread-safe; calls may block on what is behind. The map never makes two calls for one slot at a
/// time.
class PolicyTier {
 public:
  using Value = std::shared_ptr<void>;

  virtual ~PolicyTier() = default;
  /// NOT_FOUND: the tier has none; DATA_LOSS: what it has is damaged. The error is the caller's of Acquire.
  virtual absl::StatusOr<Value> Load(PolicySlot slot) = 0;
  /// Keeps a changed value that leaves the map so that Load gives it back. OK only when that is certain: what was
  /// written has been read back and compared.
  virtual absl::Status Store(PolicySlot slot, const Value& value) = 0;
  /// Memory that the value takes.
  virtual int64_t Bytes(const Value& value) const = 0;
};

/// The resident policies, at most `capacity`, by dense slot; the least recently used one makes room for the next.
/// Values are whole policies behind a pointer; what they are is the owner's business (PolicyMap<V> below).
///
/// Made by a learner, worker or server, which outlives its readers. Thread-safe: each thread acquires through a Reader
/// of its own. Acquire returns at once when everything it asks for is resident; else it loads, and may block on the
/// tier, on another thread's load, and on pins of others. Readers that hit never wait for one that misses.
/// Invariants: 1. A pinned value stays where it is. 2. A changed value is freed only after the tier has it. 3. At most
/// one load or write of a slot is under way. 4. Nobody waits while holding pins of the batch it asks for, so batches
/// cannot block each other in a circle (a thread that holds one batch and asks for another can: it must not).
/// States of a slot: unknown -> absent -> loading -> resident -> leaving -> absent; a failed load goes back to absent,
/// a failed write back to resident (then the map may hold more than `capacity`: nothing is lost).
/// Recency is exact: batches are numbered, every slot of a batch is touched once with its number; among slots of one
/// batch the lower slot counts as older.
class PolicyMapCore {
 public:
  using Value = PolicyTier::Value;
  struct Options {
    int64_t capacity = 100;     ///< values resident, at least 1
    int32_t max_slots = 16384;  ///< slots are below it
    int64_t max_leaving = 4;    ///< changed values that wait to be written; a miss that needs more waits for them
  };
  enum class Access : uint8_t {
    kRead = 1,   ///< unchanged: may be dropped without a write
    kWrite = 2,  ///< the holder changes it
  };

 private:
  struct Lane;

 public:
  /// The pins of one Acquire; released at its end. Movable; confined to its reader's thread.
  class Batch {
   public:
    Batch() = default;
    Batch(Batch&& other) noexcept { *this = std::move(other); }
    Batch& operator=(Batch&& other) noexcept;
    ~Batch() { Release(); }
    size_t size() const { return entries_.size(); }
    PolicySlot slot(size_t i) const { return PolicySlot(entries_[i].slot); }
    void* value(size_t i) const { return entries_[i].value; }
    void Release();

   private:
    friend class PolicyMapCore;
    struct Pinned {
      int32_t slot;
      void* value;
    };
    PolicyMapCore* map_ = nullptr;
    Lane* lane_ = nullptr;
    std::vector<Pinned> entries_;
  };

  /// A thread's access to the map. Confined to one thread at a time; every batch must be released before it goes.
  class Reader {
   public:
    explicit Reader(PolicyMapCore* map);
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    /// Pins every slot of the batch (repeats are allowed), loading what is not resident. INVALID_ARGUMENT for a slot
    /// out of range, NOT_FOUND for an unknown one, RESOURCE_EXHAUSTED when it has more distinct slots than the capacity
    /// (see SplitInTurns), or what the tier's Load said. On an error nothing is pinned.
    absl::StatusOr<Batch> Acquire(absl::Span<const PolicySlot> slots, Access access);

   private:
    PolicyMapCore* const map_;
    Lane* const lane_;
  };

  /// INVALID_ARGUMENT for an option below 1. `tier` and `clock` outlive the map.
  static absl::StatusOr<std::unique_ptr<PolicyMapCore>> Make(const Options& options, PolicyTier* tier,
                                                             base::Clock* clock);
  ~PolicyMapCore();
  PolicyMapCore(const PolicyMapCore&) = delete;
  PolicyMapCore& operator=(const PolicyMapCore&) = delete;

  /// A slot that the tier can load. ALREADY_EXISTS, or INVALID_ARGUMENT out of range; here and below.
  absl::Status Add(PolicySlot slot);
  /// A new policy, resident and to be written when it leaves. May wait as Acquire does.
  absl::Status Insert(PolicySlot slot, Value value);
  /// Forgets the slot; the tier is not told. NOT_FOUND; FAILED_PRECONDITION while it is pinned, loading or leaving.
  absl::Status Remove(PolicySlot slot) { return Take(slot).status(); }
  /// As Remove; what was resident is the caller's, nullptr where nothing was. For values whose end takes time.
  absl::StatusOr<Value> Take(PolicySlot slot);

  /// Distinct slots in groups of at most `capacity`, resident ones first, for a batch that needs more than fits.
  std::vector<std::vector<PolicySlot>> SplitInTurns(absl::Span<const PolicySlot> slots) const;

  /// Writes one value that is leaving, or that stayed beyond the capacity because it could not be written and is tried
  /// again; false when there is none. Called by the owner's write-back thread, or by hand.
  bool StepWriteBack();
  /// Blocks until there is something to write or the map is closed: `while (map.AwaitWriteBack()) map.StepWriteBack();`
  bool AwaitWriteBack();
  /// Ends AwaitWriteBack, after what is leaving has been written.
  void Close();

  PolicyMapStats Stats() const;
  const Options& options() const { return options_; }
  bool ResidentForTesting(PolicySlot slot) const;

 private:
  enum class State : uint8_t { kUnknown, kAbsent, kLoading, kResident, kLeaving };
  struct Entry {
    /// What readers see: set exactly while the slot is resident and may be pinned.
    std::atomic<void*> visible{nullptr};
    std::atomic<bool> changed{false};  ///< since the tier had it; stored by pinning readers, read when nobody pins
    // The rest is guarded by mutex_.
    State state = State::kUnknown;
    Value value;
    int64_t bytes = 0;
    uint64_t retry_tick = 0;  ///< a failed write is not tried again before this batch
  };
  /// What one reader wrote; its own cache lines, so that hits of two threads share nothing that is written.
  struct Lane {
    explicit Lane(int32_t max_slots)
        : pins(static_cast<size_t>(max_slots)), last_used(static_cast<size_t>(max_slots)) {}
    std::vector<std::atomic<int32_t>> pins;        ///< by slot
    std::vector<std::atomic<uint64_t>> last_used;  ///< by slot: number of the batch
    std::atomic<int64_t> hits{0};
    std::atomic<int> barrier{0};  ///< see NotifyIfAwaited
  };

  PolicyMapCore(const Options& options, PolicyTier* tier, base::Clock* clock);

  absl::StatusOr<Batch> Acquire(Lane& lane, absl::Span<const PolicySlot> slots, Access access);
  absl::StatusOr<Batch> AcquireSlowly(Lane& lane, absl::Span<const PolicySlot> slots, Access access, uint64_t tick,
                                      Batch batch);
  absl::Status CheckRange(PolicySlot slot) const;
  void Pin(Lane& lane, int32_t slot);
  void Unpin(Lane& lane, int32_t slot);
  void NotifyIfAwaited(Lane& lane);
  bool PinnedLocked(int32_t slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t LastUsedLocked(int32_t slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Makes `needed` frames free, or changes nothing and returns false. What was dropped comes back in `dropped`, to be
  /// destroyed outside the lock.
  bool MakeRoomLocked(int64_t needed, uint64_t tick, std::vector<Value>* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AdmitLocked(int32_t slot, Value value, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  PolicyTier* const tier_;
  base::Clock* const clock_;
  std::unique_ptr<Entry[]> entries_;
  std::atomic<uint64_t> ticks_{0};
  std::atomic<int64_t> waiting_{0};  ///< threads that wait, or are about to, for pins or frames

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::unique_ptr<Lane>> lanes_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> retired_last_used_ ABSL_GUARDED_BY(mutex_);  ///< by slot, of lanes that are gone
  std::vector<int32_t> resident_ ABSL_GUARDED_BY(mutex_);
  std::deque<int32_t> leaving_ ABSL_GUARDED_BY(mutex_);  ///< to be written, oldest first
  int64_t loading_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t being_written_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  PolicyMapStats stats_ ABSL_GUARDED_BY(mutex_);
};

/// A map of one kind of policy. See PolicyMapCore, whose contract it has.
template <typename V>
class PolicyMap {
 public:
  using Options = PolicyMapCore::Options;
  using Access = PolicyMapCore::Access;

  /// Pinned values, in the order they were asked for.
  class Batch {
   public:
    explicit Batch(PolicyMapCore::Batch batch) : batch_(std::move(batch)) {}
    size_t size() const { return batch_.size(); }
    PolicySlot slot(size_t i) const { return batch_.slot(i); }
    V& operator[](size_t i) const { return *static_cast<V*>(batch_.value(i)); }
    void Release() { batch_.Release(); }

   private:
    PolicyMapCore::Batch batch_;
  };
  class Reader {
   public:
    explicit Reader(PolicyMap* map) : reader_(map->core_.get()) {}
    absl::StatusOr<Batch> Acquire(absl::Span<const PolicySlot> slots, Access access) {
      absl::StatusOr<PolicyMapCore::Batch> batch = reader_.Acquire(slots, access);
      if (!batch.ok()) return batch.status();
      return Batch(*std::move(batch));
    }

   private:
    PolicyMapCore::Reader reader_;
  };

  static absl::StatusOr<std::unique_ptr<PolicyMap>> Make(const Options& options, PolicyTier* tier, base::Clock* clock) {
    absl::StatusOr<std::unique_ptr<PolicyMapCore>> core = PolicyMapCore::Make(options, tier, clock);
    if (!core.ok()) return core.status();
    return std::unique_ptr<PolicyMap>(new PolicyMap(*std::move(core)));
  }
  absl::Status Insert(PolicySlot slot, std::shared_ptr<V> value) { return core_->Insert(slot, std::move(value)); }
  PolicyMapCore& core() { return *core_; }

 private:
  explicit PolicyMap(std::unique_ptr<PolicyMapCore> core) : core_(std::move(core)) {}
  std::unique_ptr<PolicyMapCore> core_;
};

}  // namespace troupe::policy
