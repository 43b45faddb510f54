#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/indexed_vector.h"
#include "lib/base/mutex.h"
#include "lib/policy/blob_store.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_map.h"
#include "lib/policy/weight_snapshot.h"

namespace troupe::policy {

/// What a resident policy is to its owner, and how it becomes a PolicyState and back. Called by the thread that loads
/// or stores.
class ResidentForm {
 public:
  virtual ~ResidentForm() = default;
  virtual absl::StatusOr<PolicyTier::Value> FromState(PolicySlot slot, const PolicyState& state) = 0;
  virtual PolicyState ToState(PolicySlot slot, const PolicyTier::Value& value) = 0;
  virtual int64_t Bytes(const PolicyTier::Value& value) const = 0;
};

/// What a tier did since it was made, and what it holds now.
struct PolicyStateTierStats {
  int64_t host_bytes = 0;      ///< of states in host memory
  int64_t states_on_disk = 0;  ///< whose only copy is in the BlobStore
  int64_t blob_writes = 0;     ///< verified
  int64_t blob_write_failures = 0;
  int64_t blob_reads = 0;
  int64_t lost = 0;  ///< states that the BlobStore did not give back
};

/// A learner's tier: states of policies that are not resident, in host memory up to a budget; beyond it the least
/// recently stored goes to a BlobStore, from where it is read when it is wanted. Holds nothing of a policy that was
/// never stored: its first state is made anew each time.
///
/// Made by a learner's trainer. Thread-safe as PolicyTier is (one call for a slot at a time); may block on the
/// BlobStore, never under its lock.
/// Invariants: 1. A state leaves host memory only after the blob was read back and is the same bytes. 2. A state that
/// was refused has changed nothing. 3. Host memory stays within the budget, except for what Put must keep.
class PolicyStateTier final : public PolicyTier {
 public:
  using StatePtr = std::shared_ptr<const PolicyState>;
  using Source = std::function<absl::StatusOr<PolicyState>(PolicySlot)>;
  struct Options {
    int64_t host_budget_bytes = int64_t{1} << 30;  ///< 0: everything goes to the BlobStore
  };
  struct Deps {
    BlobStore* blobs = nullptr;    ///< nullptr: everything stays in host memory, whatever the budget
    ResidentForm* form = nullptr;  ///< required
    Source initial;                ///< required; the state of a policy that was never stored
    Source fallback;               ///< an older state of one that is lost; may be absent
  };

  /// `specs` by slot and the deps outlive the tier. INVALID_ARGUMENT for a budget below 0.
  static absl::StatusOr<std::unique_ptr<PolicyStateTier>> Make(const std::vector<PolicySpec>* specs,
                                                               const Options& options, Deps deps);

  /// DATA_LOSS when the state is missing or damaged and there was no fallback; what ResidentForm says.
  absl::StatusOr<Value> Load(PolicySlot slot) override;
  /// What the BlobStore said when there was no room in the budget and none could be made (also logged, ever more
  /// rarely: a map keeps the value and goes on).
  absl::Status Store(PolicySlot slot, const Value& value) override;
  int64_t Bytes(const Value& value) const override { return deps_.form->Bytes(value); }

  /// The state as Load finds it.
  absl::StatusOr<StatePtr> Read(PolicySlot slot);
  /// Keeps a state that has no other place: over the budget when no room can be made.
  void Put(PolicySlot slot, PolicyState state);

  /// There are this many slots from now on: as many as specs. Slots that are gone have been forgotten.
  void SetNumSlots(size_t num_slots);
  /// Frees what it holds of the slot, in memory and in the BlobStore; its next policy was never stored.
  void Forget(PolicySlot slot);

  PolicyStateTierStats Stats() const;

 private:
  enum class Place : uint8_t { kNowhere, kHost, kDisk };
  struct Entry {
    Place place = Place::kNowhere;
    StatePtr host;
    int64_t bytes = 0;
    uint64_t stored_at = 0;  ///< key in oldest_
    bool spilling = false;   ///< on its way to the BlobStore, still in host memory
    bool lost = false;       ///< counted and logged
  };

  PolicyStateTier(const std::vector<PolicySpec>* specs, const Options& options, Deps deps);

  absl::Status Keep(PolicySlot slot, StatePtr state, bool must_keep);
  /// Spills others until `bytes` of the slot fit; false when they never will, or the error of the BlobStore.
  absl::StatusOr<bool> MakeRoom(PolicySlot slot, int64_t bytes);
  absl::Status WriteBlob(PolicySlot slot, const PolicyState& state);
  absl::StatusOr<StatePtr> ReadBlob(PolicySlot slot);
  absl::StatusOr<StatePtr> Recover(PolicySlot slot, const absl::Status& damage);
  /// The state, to be destroyed outside the lock.
  StatePtr TakeFromHostLocked(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<PolicySpec>& specs_;
  const Options options_;
  const Deps deps_;

  mutable base::Mutex mutex_;
  base::IndexedVector<PolicySlot, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, PolicySlot> oldest_ ABSL_GUARDED_BY(mutex_);  ///< in host memory, by when they were stored
  uint64_t stores_ ABSL_GUARDED_BY(mutex_) = 0;
  PolicyStateTierStats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::policy
