#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lib/inference/action_bounds.h"
#include "lib/inference/policy_actor.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"

namespace troupe::rollout {

/// A policy as a worker plays it.
struct ResidentActor {
  std::unique_ptr<inference::PolicyActor> actor;
  inference::ActionBounds bounds;
  size_t action_words = 0;
  bool has_weights = false;
  int32_t shape = -1;      ///< number of the policy's shape; of one shape actors can take over from each other
  uint64_t last_used = 0;  ///< the round in which it acted last
  int64_t adopted_in = 0;  ///< the grant whose weights it has
  uint64_t held_by = 0;    ///< see ActorMap::Hold
};

/// The policies that are resident in a worker, by slot. Those that are in use are held; of the others at most
/// `capacity` stay, the exact least recently used ones leave. A miss is no more than making an actor: weights come from
/// the WeightSource.
///
/// Not a policy::PolicyMap: that bounds all values together and blocks while too many are pinned, and its pins are of
/// one batch. Here what episodes in progress play is kept for their whole length however much it is, and one thread
/// does everything. Made and used by the Collector; not thread-safe.
class ActorMap {
 public:
  /// Actors that were dropped and wait to be used again, at most: an update's worth of misses. Each keeps its buffers,
  /// and its last weights until it is used: some 100 KB for the usual small networks.
  static constexpr size_t kMaxSpares = 64;

  explicit ActorMap(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {}

  /// nullptr when it is not resident.
  ResidentActor* Find(policy::PolicySlot slot) { return actors_.Contains(slot) ? actors_[slot].get() : nullptr; }
  ResidentActor& Insert(policy::PolicySlot slot, std::unique_ptr<ResidentActor> actor);
  void Erase(policy::PolicySlot slot);
  /// One that was dropped, for a policy of this shape, with no weights; nullptr when there is none.
  std::unique_ptr<ResidentActor> TakeSpare(int32_t shape, const policy::PolicySpec& spec);

  /// Lets everybody go; then Hold those that are in use; then Trim.
  void BeginHolding() { ++holding_; }
  void Hold(policy::PolicySlot slot) {
    if (ResidentActor* const actor = Find(slot)) actor->held_by = holding_;
  }
  /// Drops the least recently used of those that are not held, the lower slot first where two acted last in one round,
  /// until `capacity` of them are left. Adds their slots to `dropped`. Their actors become spares.
  void Trim(std::vector<policy::PolicySlot>& dropped);

  const std::vector<policy::PolicySlot>& resident() const { return resident_; }

 private:
  const size_t capacity_;
  policy::BySlot<std::unique_ptr<ResidentActor>> actors_;
  std::vector<policy::PolicySlot> resident_;
  std::vector<std::unique_ptr<ResidentActor>> spares_;
  std::vector<std::pair<uint64_t, policy::PolicySlot>> idle_;  ///< while trimming: when it was used, slot
  uint64_t holding_ = 0;
};

}  // namespace troupe::rollout
