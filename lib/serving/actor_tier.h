#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/inference/actor_host.h"
#include "lib/inference/backend.h"
#include "lib/policy/ids.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_map.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/serving/weight_source.h"

namespace troupe::serving {

class ServedPolicy;

/// Makes the actors of a QueryEngine's map, of the newest weights or of what a WeightSource has. An actor holds nothing
/// that its policy does not: evicted means dropped. Thread-safe; Load may block on the source.
class ActorTier final : public policy::PolicyTier {
 public:
  /// `source` may be nullptr: then weights must have been offered. It outlives the tier. Without `actor_host` policies
  /// in another process cannot be asked.
  ActorTier(uint64_t actor_seed, inference::Backend backend, WeightSource* source,
            std::shared_ptr<inference::ActorHost> actor_host)
      : actor_seed_(actor_seed), backend_(backend), source_(source), actor_host_(std::move(actor_host)) {}

  /// Who is in the slot; whoever acquires it keeps the policy alive meanwhile.
  void SetPolicy(policy::PolicySlot slot, const ServedPolicy* policy);

  /// A ServingActor. UNAVAILABLE: no weights yet; what the source said, and MakePolicyActor.
  absl::StatusOr<Value> Load(policy::PolicySlot slot) override;
  /// Never called: queries change nothing.
  absl::Status Store(policy::PolicySlot slot, const Value& value) override;
  int64_t Bytes(const Value& value) const override;

  /// UNAVAILABLE.
  static absl::Status NoWeights(const policy::PolicySpec& spec);

 private:
  absl::StatusOr<policy::WeightSnapshotPtr> WeightsOf(const ServedPolicy& policy) const;

  const uint64_t actor_seed_;
  const inference::Backend backend_;
  WeightSource* const source_;
  const std::shared_ptr<inference::ActorHost> actor_host_;
  base::Mutex mutex_;
  policy::BySlot<const ServedPolicy*> policies_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::serving
