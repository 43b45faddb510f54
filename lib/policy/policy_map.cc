#include "lib/policy/policy_map.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"

namespace troupe::policy {
namespace {

// So many batches pass before a value whose write failed is tried again.
constexpr uint64_t kRetryBatches = 256;

/// The distinct slots, ascending.
std::vector<int32_t> Distinct(absl::Span<const PolicySlot> slots) {
  std::vector<int32_t> distinct;
  distinct.reserve(slots.size());
  for (const PolicySlot slot : slots) distinct.push_back(slot.value());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  return distinct;
}

absl::Status Unknown(int32_t slot) { return absl::NotFoundError(absl::StrCat("policy map: no policy in slot ", slot)); }

}  // namespace

// Pins and visibility follow Dekker's pattern: a reader stores its pin and then reads `visible`; who evicts clears
// `visible` and then reads the pins. Both orders are sequentially consistent, so at least one of them sees the other.

PolicyMapCore::PolicyMapCore(const Options& options, PolicyTier* tier, base::Clock* clock)
    : options_(options),
      tier_(tier),
      clock_(clock),
      entries_(new Entry[static_cast<size_t>(options.max_slots)]),
      retired_last_used_(static_cast<size_t>(options.max_slots)) {}

absl::StatusOr<std::unique_ptr<PolicyMapCore>> PolicyMapCore::Make(const Options& options, PolicyTier* tier,
                                                                   base::Clock* clock) {
  if (options.capacity < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy_map_capacity is ", options.capacity, ", expected at least 1"));
  }
  if (options.max_slots < 1 || options.max_leaving < 1) {
    return absl::InvalidArgumentError(absl::StrCat("policy map: max_slots is ", options.max_slots, " and max_leaving ",
                                                   options.max_leaving, ", expected at least 1"));
  }
  return std::unique_ptr<PolicyMapCore>(new PolicyMapCore(options, tier, clock));
}

PolicyMapCore::~PolicyMapCore() {
  base::MutexLock lock(&mutex_);
  TROUPE_CHECK(lanes_.empty());
}

PolicyMapCore::Reader::Reader(PolicyMapCore* map) : map_(map), lane_(new Lane(map->options_.max_slots)) {
  base::MutexLock lock(&map_->mutex_);
  map_->lanes_.emplace_back(lane_);
}

PolicyMapCore::Reader::~Reader() {
  std::unique_ptr<Lane> gone;
  base::MutexLock lock(&map_->mutex_);
  const auto found = std::find_if(map_->lanes_.begin(), map_->lanes_.end(),
                                  [this](const std::unique_ptr<Lane>& lane) { return lane.get() == lane_; });
  for (size_t slot = 0; slot < lane_->pins.size(); ++slot) {
    TROUPE_CHECK(lane_->pins[slot].load(std::memory_order_relaxed) == 0);
    uint64_t& last = map_->retired_last_used_[slot];
    last = std::max(last, lane_->last_used[slot].load(std::memory_order_relaxed));
  }
  map_->stats_.hits += lane_->hits.load(std::memory_order_relaxed);
  gone = std::move(*found);
  map_->lanes_.erase(found);
}

PolicyMapCore::Batch& PolicyMapCore::Batch::operator=(Batch&& other) noexcept {
  if (this == &other) return *this;
  Release();
  map_ = std::exchange(other.map_, nullptr);
  lane_ = other.lane_;
  entries_ = std::move(other.entries_);
  other.entries_.clear();
  return *this;
}

void PolicyMapCore::Batch::Release() {
  if (map_ == nullptr) return;
  for (const Pinned& pinned : entries_) map_->Unpin(*lane_, pinned.slot);
  map_->NotifyIfAwaited(*lane_);
  entries_.clear();
  map_ = nullptr;
}

void PolicyMapCore::Pin(Lane& lane, int32_t slot) {
  std::atomic<int32_t>& pins = lane.pins[static_cast<size_t>(slot)];
  pins.store(pins.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
}

void PolicyMapCore::Unpin(Lane& lane, int32_t slot) {
  std::atomic<int32_t>& pins = lane.pins[static_cast<size_t>(slot)];
  pins.store(pins.load(std::memory_order_relaxed) - 1, std::memory_order_release);
}

// A waiter raises `waiting_` and then looks at the pins; here the pins were lowered, so `waiting_` may be read only
// after all of that is visible. A sequentially consistent store on a line of our own is the cheapest way.
void PolicyMapCore::NotifyIfAwaited(Lane& lane) {
  lane.barrier.store(0, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst) == 0) return;
  base::MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

absl::Status PolicyMapCore::CheckRange(PolicySlot slot) const {
  if (slot.value() >= 0 && slot.value() < options_.max_slots) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("policy map: slot ", slot.value(), ", expected 0 to ", options_.max_slots - 1));
}

absl::StatusOr<PolicyMapCore::Batch> PolicyMapCore::Reader::Acquire(absl::Span<const PolicySlot> slots, Access access) {
  return map_->Acquire(*lane_, slots, access);
}

absl::StatusOr<PolicyMapCore::Batch> PolicyMapCore::Acquire(Lane& lane, absl::Span<const PolicySlot> slots,
                                                            Access access) {
  for (const PolicySlot slot : slots) TROUPE_RETURN_IF_ERROR(CheckRange(slot));
  const uint64_t tick = ticks_.fetch_add(1, std::memory_order_relaxed) + 1;
  Batch batch;
  batch.map_ = this;
  batch.lane_ = &lane;
  batch.entries_.reserve(slots.size());
  bool all = true;
  for (const PolicySlot slot : slots) {
    const auto index = static_cast<size_t>(slot.value());
    Pin(lane, slot.value());
    void* const value = entries_[index].visible.load(std::memory_order_seq_cst);
    batch.entries_.push_back({slot.value(), value});
    lane.last_used[index].store(tick, std::memory_order_relaxed);
    all = all && value != nullptr;
  }
  if (!all) return AcquireSlowly(lane, slots, access, tick, std::move(batch));
  if (access == Access::kWrite) {
    for (const PolicySlot slot : slots) entries_[slot.value()].changed.store(true, std::memory_order_relaxed);
  }
  lane.hits.store(lane.hits.load(std::memory_order_relaxed) + static_cast<int64_t>(slots.size()),
                  std::memory_order_relaxed);
  return batch;
}

bool PolicyMapCore::PinnedLocked(int32_t slot) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [slot](const std::unique_ptr<Lane>& lane) {
    return lane->pins[static_cast<size_t>(slot)].load(std::memory_order_seq_cst) > 0;
  });
}

uint64_t PolicyMapCore::LastUsedLocked(int32_t slot) const {
  uint64_t last = retired_last_used_[static_cast<size_t>(slot)];
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    last = std::max(last, lane->last_used[static_cast<size_t>(slot)].load(std::memory_order_relaxed));
  }
  return last;
}

bool PolicyMapCore::MakeRoomLocked(int64_t needed, uint64_t tick, std::vector<Value>* dropped) {
  int64_t surplus = static_cast<int64_t>(resident_.size()) + loading_ + needed - options_.capacity;
  if (surplus <= 0) return true;
  std::vector<std::pair<uint64_t, int32_t>> oldest;
  oldest.reserve(resident_.size());
  int64_t cannot_leave = 0;
  for (const int32_t slot : resident_) {
    if (PinnedLocked(slot)) continue;
    if (entries_[slot].retry_tick > tick) {
      ++cannot_leave;
    } else {
      oldest.emplace_back(LastUsedLocked(slot), slot);
    }
  }
  // What could not be written stays, beyond the capacity.
  surplus -= cannot_leave;
  if (surplus <= 0) return true;
  if (static_cast<int64_t>(oldest.size()) < surplus) return false;
  std::sort(oldest.begin(), oldest.end());
  // Readers may pin until they cannot see the slot any more: hide, then look.
  std::vector<int32_t> victims;
  int64_t changed = 0;
  const int64_t leaving = static_cast<int64_t>(leaving_.size()) + being_written_;
  for (const auto& [last_used, slot] : oldest) {
    if (static_cast<int64_t>(victims.size()) == surplus) break;
    Entry& entry = entries_[slot];
    void* const value = entry.visible.exchange(nullptr, std::memory_order_seq_cst);
    // One that needs more room than may leave at a time gets it once nothing else is leaving.
    const bool must_wait =
        entry.changed.load(std::memory_order_relaxed) && leaving > 0 && leaving + changed >= options_.max_leaving;
    if (PinnedLocked(slot) || must_wait) {
      entry.visible.store(value, std::memory_order_seq_cst);
      if (must_wait) break;
      continue;
    }
    changed += entry.changed.load(std::memory_order_relaxed) ? 1 : 0;
    victims.push_back(slot);
  }
  if (static_cast<int64_t>(victims.size()) < surplus) {
    for (const int32_t slot : victims) {
      entries_[slot].visible.store(entries_[slot].value.get(), std::memory_order_seq_cst);
    }
    return false;
  }
  for (const int32_t slot : victims) {
    Entry& entry = entries_[slot];
    resident_.erase(std::find(resident_.begin(), resident_.end(), slot));
    ++stats_.evictions;
    if (entry.changed.load(std::memory_order_relaxed)) {
      entry.state = State::kLeaving;
      leaving_.push_back(slot);
    } else {
      entry.state = State::kAbsent;
      stats_.resident_bytes -= entry.bytes;
      dropped->push_back(std::move(entry.value));
    }
  }
  if (changed > 0) changed_.NotifyAll();
  return true;
}

void PolicyMapCore::AdmitLocked(int32_t slot, Value value, int64_t bytes) {
  Entry& entry = entries_[slot];
  entry.value = std::move(value);
  entry.bytes = bytes;
  entry.state = State::kResident;
  entry.retry_tick = 0;
  resident_.push_back(slot);
  stats_.resident_bytes += bytes;
  entry.visible.store(entry.value.get(), std::memory_order_seq_cst);
}

absl::StatusOr<PolicyMapCore::Batch> PolicyMapCore::AcquireSlowly(Lane& lane, absl::Span<const PolicySlot> slots,
                                                                  Access access, uint64_t tick, Batch batch) {
  const std::vector<int32_t> distinct = Distinct(slots);
  if (static_cast<int64_t>(distinct.size()) > options_.capacity) {
    return absl::ResourceExhaustedError(absl::StrCat("policy map: a batch of ", distinct.size(),
                                                     " policies, expected at most policy_map_capacity, ",
                                                     options_.capacity));
  }
  std::vector<int32_t> ours;  // to be loaded by this call
  std::vector<Value> dropped;
  bool counted = false;
  bool waited = false;
  {
    base::MutexLock lock(&mutex_);
    bool announced = false;
    absl::Status status;
    while (true) {
      // The batch's pins are held here (from Acquire, or from below), and nobody can evict: the lock is ours.
      ours.clear();
      bool others = false;
      for (const int32_t slot : distinct) {
        const State state = entries_[slot].state;
        if (state == State::kUnknown) status = Unknown(slot);
        if (state == State::kAbsent) ours.push_back(slot);
        others = others || state == State::kLoading || state == State::kLeaving;
      }
      if (!counted) {
        for (const PolicySlot slot : slots) {
          (entries_[slot.value()].state == State::kResident ? stats_.hits : stats_.misses) += 1;
        }
        counted = true;
      }
      if (!status.ok()) break;
      if (!others && (ours.empty() || MakeRoomLocked(static_cast<int64_t>(ours.size()), tick, &dropped))) break;
      // Whoever unpins once we are announced notifies; who did so before has to be looked for once more.
      if (!std::exchange(announced, true)) {
        waiting_.fetch_add(1, std::memory_order_seq_cst);
        continue;
      }
      // Wait with empty hands. Only the pins made before the lock was ours can have been in somebody's way.
      for (const PolicySlot slot : slots) Unpin(lane, slot.value());
      if (!waited) changed_.NotifyAll();
      waited = true;
      changed_.Wait(&mutex_);
      for (const PolicySlot slot : slots) Pin(lane, slot.value());
    }
    if (announced) waiting_.fetch_sub(1, std::memory_order_seq_cst);
    if (!status.ok()) return status;
    for (const int32_t slot : ours) entries_[slot].state = State::kLoading;
    loading_ += static_cast<int64_t>(ours.size());
  }
  dropped.clear();

  absl::Status failed;
  for (const int32_t slot : ours) {
    const absl::Duration begin = clock_->SteadyNow();
    absl::StatusOr<Value> loaded = failed.ok() ? tier_->Load(PolicySlot(slot)) : absl::StatusOr<Value>(failed);
    const absl::Duration took = clock_->SteadyNow() - begin;
    const int64_t bytes = loaded.ok() ? tier_->Bytes(*loaded) : 0;
    base::MutexLock lock(&mutex_);
    --loading_;
    stats_.load_time += took;
    if (loaded.ok()) {
      entries_[slot].changed.store(false, std::memory_order_relaxed);
      AdmitLocked(slot, *std::move(loaded), bytes);
    } else {
      entries_[slot].state = State::kAbsent;
      if (failed.ok()) ++stats_.load_failures;
      failed = loaded.status();
    }
    changed_.NotifyAll();
  }
  if (!failed.ok()) return failed;  // the batch unpins what it holds
  for (Batch::Pinned& pinned : batch.entries_) {
    pinned.value = entries_[pinned.slot].visible.load(std::memory_order_seq_cst);
    TROUPE_CHECK(pinned.value != nullptr);
    if (access == Access::kWrite) entries_[pinned.slot].changed.store(true, std::memory_order_relaxed);
  }
  return batch;
}

absl::Status PolicyMapCore::Add(PolicySlot slot) {
  TROUPE_RETURN_IF_ERROR(CheckRange(slot));
  base::MutexLock lock(&mutex_);
  Entry& entry = entries_[slot.value()];
  if (entry.state != State::kUnknown) {
    return absl::AlreadyExistsError(absl::StrCat("policy map: slot ", slot.value(), " is taken"));
  }
  entry.state = State::kAbsent;
  return absl::OkStatus();
}

absl::Status PolicyMapCore::Insert(PolicySlot slot, Value value) {
  TROUPE_RETURN_IF_ERROR(CheckRange(slot));
  const int64_t bytes = tier_->Bytes(value);
  std::vector<Value> dropped;
  base::MutexLock lock(&mutex_);
  Entry& entry = entries_[slot.value()];
  if (entry.state != State::kUnknown) {
    return absl::AlreadyExistsError(absl::StrCat("policy map: slot ", slot.value(), " is taken"));
  }
  const uint64_t tick = ticks_.fetch_add(1, std::memory_order_relaxed) + 1;
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  entry.state = State::kLoading;
  while (!MakeRoomLocked(1, tick, &dropped)) changed_.Wait(&mutex_);
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
  retired_last_used_[static_cast<size_t>(slot.value())] = tick;
  entry.changed.store(true, std::memory_order_relaxed);
  AdmitLocked(slot.value(), std::move(value), bytes);
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<PolicyMapCore::Value> PolicyMapCore::Take(PolicySlot slot) {
  TROUPE_RETURN_IF_ERROR(CheckRange(slot));
  Value taken;
  base::MutexLock lock(&mutex_);
  Entry& entry = entries_[slot.value()];
  if (entry.state == State::kUnknown) return Unknown(slot.value());
  // Who pinned it under the lock counts on seeing it; whoever pins from here on and does not see it takes the lock.
  bool in_use = entry.state == State::kLoading || entry.state == State::kLeaving || PinnedLocked(slot.value());
  if (!in_use) {
    entry.visible.exchange(nullptr, std::memory_order_seq_cst);
    in_use = PinnedLocked(slot.value());
    if (in_use && entry.state == State::kResident) {
      entry.visible.store(entry.value.get(), std::memory_order_seq_cst);
    }
  }
  if (in_use) return absl::FailedPreconditionError(absl::StrCat("policy map: slot ", slot.value(), " is in use"));
  if (entry.state == State::kResident) {
    resident_.erase(std::find(resident_.begin(), resident_.end(), slot.value()));
    stats_.resident_bytes -= entry.bytes;
    taken = std::move(entry.value);
  }
  entry.state = State::kUnknown;
  changed_.NotifyAll();
  return taken;
}

std::vector<std::vector<PolicySlot>> PolicyMapCore::SplitInTurns(absl::Span<const PolicySlot> slots) const {
  std::vector<int32_t> distinct = Distinct(slots);
  {
    base::MutexLock lock(&mutex_);
    std::stable_partition(distinct.begin(), distinct.end(), [this](int32_t slot) {
      return slot >= 0 && slot < options_.max_slots && entries_[slot].state == State::kResident;
    });
  }
  std::vector<std::vector<PolicySlot>> turns;
  for (const int32_t slot : distinct) {
    if (turns.empty() || static_cast<int64_t>(turns.back().size()) == options_.capacity) turns.emplace_back();
    turns.back().emplace_back(slot);
  }
  return turns;
}

bool PolicyMapCore::StepWriteBack() {
  int32_t slot = 0;
  Value value;
  std::vector<Value> dropped;
  {
    base::MutexLock lock(&mutex_);
    // Who stayed beyond the capacity, because it could not be written, leaves once it is tried again: no miss may come
    // that would ask for it, as everybody may be resident by now.
    if (leaving_.empty()) MakeRoomLocked(0, ticks_.load(std::memory_order_relaxed), &dropped);
    if (leaving_.empty()) return false;
    slot = leaving_.front();
    leaving_.pop_front();
    ++being_written_;
    value = entries_[slot].value;
  }
  const absl::Duration begin = clock_->SteadyNow();
  const absl::Status written = tier_->Store(PolicySlot(slot), value);
  const absl::Duration took = clock_->SteadyNow() - begin;
  base::MutexLock lock(&mutex_);
  Entry& entry = entries_[slot];
  --being_written_;
  stats_.write_time += took;
  stats_.resident_bytes -= entry.bytes;
  if (written.ok()) {
    ++stats_.writes;
    entry.state = State::kAbsent;
    entry.value.reset();  // `value` is the last owner, and goes after the lock
  } else {
    ++stats_.write_failures;
    AdmitLocked(slot, std::move(entry.value), entry.bytes);
    entry.retry_tick = ticks_.load(std::memory_order_relaxed) + kRetryBatches;
  }
  changed_.NotifyAll();
  return true;
}

bool PolicyMapCore::AwaitWriteBack() {
  base::MutexLock lock(&mutex_);
  while (leaving_.empty() && !closed_) changed_.Wait(&mutex_);
  return !leaving_.empty();
}

void PolicyMapCore::Close() {
  base::MutexLock lock(&mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

PolicyMapStats PolicyMapCore::Stats() const {
  base::MutexLock lock(&mutex_);
  PolicyMapStats stats = stats_;
  for (const std::unique_ptr<Lane>& lane : lanes_) stats.hits += lane->hits.load(std::memory_order_relaxed);
  stats.resident = static_cast<int64_t>(resident_.size());
  stats.leaving = static_cast<int64_t>(leaving_.size()) + being_written_;
  return stats;
}

bool PolicyMapCore::ResidentForTesting(PolicySlot slot) const {
  base::MutexLock lock(&mutex_);
  return entries_[slot.value()].state == State::kResident;
}

}  // namespace troupe::policy
