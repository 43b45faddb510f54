#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/rollout/ports.h"
#include "lib/rpc/codec/weight_codec.h"
#include "lib/rpc/transport/client_link.h"
#include "lib/sample/ids.h"

namespace troupe::rpc {

/// Which policy a worker expects in which slot, which of their weights it wants, and the newest that have come, over
/// one Weights stream after the other. Decides; makes no call. Made by WorkerClient, of which it is a passive part.
///
/// Not thread-safe: WorkerClient holds its mutex. Never blocks. What is dropped is given back, so that it can be
/// destroyed outside the lock. Invariants: 1. Weights are of the policy that the newest table has in their slot; a
/// table that brings another drops them and has them asked for again. 2. On each stream requests are numbered 1, 2, 3,
/// ...; an announcement of a number covers the slots asked for up to it. 3. A slot's weights never become older.
/// Capacity: PolicyTable::kMaxPolicies slots, one snapshot each.
class WeightSubscriber {
 public:
  using Dropped = std::vector<policy::WeightSnapshotPtr>;

  WeightSubscriber() : subscriptions_(policy::PolicyTable::kMaxPolicies) {}

  // Policies.

  /// Those as of the run's start. Once; before it no stream begins.
  void SetFirstPolicies(SlotPoliciesPtr policies);
  bool has_policies() const { return policies_ != nullptr; }
  /// The newest of this learner epoch; nullptr: as of the run's start.
  const policy::PolicyTablePtr& table() const { return table_; }
  /// INVALID_ARGUMENT for a table that is older than the one before; `learner_epoch` is for words.
  absl::Status CheckTable(const policy::PolicyTable& table, uint64_t learner_epoch) const;
  /// A table that passed, with what it expects in each slot. Nothing changes by a revision that is known.
  Dropped OnTable(const policy::PolicyTablePtr& table, const SlotPoliciesPtr& policies);
  /// Another life of the learner, perhaps of an earlier state: it sends its table again.
  Dropped OnNewLearnerEpoch();
  /// A grant by `table` was taken: what its slots have is what Find goes by.
  void OnGrantTaken(const policy::PolicyTablePtr& table);

  // Subscriptions. The policy is one of kMaxPolicies.

  /// Whether there is something new to request.
  bool Subscribe(policy::PolicySlot policy);
  /// nullopt: nothing new to request. Else the weights that there were, or nullptr.
  std::optional<policy::WeightSnapshotPtr> Unsubscribe(policy::PolicySlot policy);
  /// The weights in the slot, if they are current as of `min_version`. ABORTED: the slot no longer has the policy that
  /// it had by the grant that was taken last.
  absl::StatusOr<std::optional<rollout::CurrentWeights>> Find(policy::PolicySlot policy,
                                                              policy::WeightVersion min_version) const;

  // The stream.

  /// Another stream begins, over which nothing has been requested yet.
  void BeginStream();
  /// The next request, which says who asks where it is the stream's first; nullopt: none.
  std::optional<LinkOwner::Outgoing> NextRequest(sample::WorkerId worker_id, uint64_t spec_hash);
  /// What receives the weights of the stream that goes on.
  struct Reception {
    std::shared_ptr<WeightAssembler> assembler;  ///< used by the stream's read reaction alone, without the lock
    SlotPoliciesPtr policies;                    ///< what it is to expect now
  };
  Reception reception() const { return {assembler_, policies_}; }
  struct Received {
    bool news = false;  ///< Find may give more than before
    policy::WeightSnapshotPtr replaced;
  };
  /// Weights or an announcement that came while `policies` were expected.
  Received OnUpdate(const WeightAssembler::Update& update, const SlotPolicies& policies);

 private:
  /// What is known of the weights in one slot.
  struct Subscription {
    bool wanted = false;
    bool told = false;     ///< the learner thinks that it is wanted, on this stream
    bool changed = false;  ///< stands in changed_slots_
    uint64_t number = 0;   ///< of the request that asked for it; 0: not asked yet
    policy::WeightSnapshotPtr snapshot;
  };
  /// The learner must hear of it with the next request.
  void NoteChange(policy::PolicySlot slot);
  /// Another policy may be in some slots: their weights are dropped and asked for again.
  Dropped Expect(const SlotPoliciesPtr& policies);

  SlotPoliciesPtr first_policies_;    ///< as of the run's start; nullptr before SetFirstPolicies
  SlotPoliciesPtr policies_;          ///< as of table_; nullptr likewise
  SlotPoliciesPtr granted_policies_;  ///< as of the grant that was taken last
  policy::PolicyTablePtr table_;

  policy::BySlot<Subscription> subscriptions_;
  std::vector<policy::PolicySlot> changed_slots_;

  // Of the stream.
  std::shared_ptr<WeightAssembler> assembler_;
  uint64_t requests_ = 0;
  uint64_t announced_number_ = 0;  ///< 0: no announcement yet
  policy::WeightVersion announced_;
};

}  // namespace troupe::rpc
